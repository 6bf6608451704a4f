"""Where artifacts are kept: a folder, an S3 bucket, or memory for tests."""
