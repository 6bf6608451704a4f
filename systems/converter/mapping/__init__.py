"""The mappings from a PDF to XML. The same file always results in the same bytes."""
