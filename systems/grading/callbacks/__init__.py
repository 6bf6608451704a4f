"""What workers say comes in here: read from the broker, verified, and told to the engine."""
