"""Generates the reference page and the clients from the API's OpenAPI document: `python -m tools.openapi`."""
