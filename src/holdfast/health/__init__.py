"""The health of a deployment: reads the inputs and judges them."""
