"""Brokers that hand out due jobs; `holdfast.engine.dispatch` says what they do."""
