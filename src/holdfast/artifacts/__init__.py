"""The stores of artifacts: a folder, an S3 bucket, or memory for tests."""
