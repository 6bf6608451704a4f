"""The names of the mappings, for those who do not convert: importing this loads no parser."""

MAPPINGS = ("text", "jats", "alto")
