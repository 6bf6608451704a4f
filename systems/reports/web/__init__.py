"""The page and the HTTP API of the reports: request, inspect and fetch reports; captures and figures for operators."""
