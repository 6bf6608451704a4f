"""The worker process: claim jobs, run them and settle them."""
