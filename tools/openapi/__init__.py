"""What is made from the API's OpenAPI document: reference, clients. `python -m tools.openapi`."""
