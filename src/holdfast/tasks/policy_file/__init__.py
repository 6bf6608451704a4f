"""The policy file `holdfast.toml`, which overrides the policies in the code (E10)."""
