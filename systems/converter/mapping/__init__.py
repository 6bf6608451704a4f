"""The mappings: from a PDF to XML, the same bytes for the same file."""
