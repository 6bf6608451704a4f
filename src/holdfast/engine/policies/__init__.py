"""Policies in a file: `holdfast.toml`, read whole, checked whole, applied over what the code says (E10)."""
