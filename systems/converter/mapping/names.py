"""The names of the mappings. Unlike `convert`, this module loads no parser."""

MAPPINGS = ("text", "jats", "alto")
