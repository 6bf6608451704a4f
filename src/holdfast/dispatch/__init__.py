"""The brokers that can dispatch due jobs. `holdfast.engine.dispatch` defines their contract."""
