"""Screenshots: take pictures of web pages through an API, for credits."""
