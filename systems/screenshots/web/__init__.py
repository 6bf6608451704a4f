"""The page and the HTTP API of the screenshots: request, read and retry pictures; figures and promises for operators."""
