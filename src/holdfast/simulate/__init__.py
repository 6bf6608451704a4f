"""Simulate outages with the code that makes the decisions in production (E75).

`scenarios` defines what goes wrong, `policies` how the workers react, `world` runs one against the other, and
`figures` holds the results. Nothing here waits, calls or stores anything. Time is a number and randomness is
an argument, so the same seed gives the same simulation.
"""
