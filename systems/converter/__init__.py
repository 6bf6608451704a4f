"""The converter system: a user uploads a PDF and gets XML, through a gateway that may fail."""
