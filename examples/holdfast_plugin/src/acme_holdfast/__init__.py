"""An example of a Holdfast plug-in. Each module is one entry point; see pyproject.toml."""
