"""`make run`: the gateway, the web app and a worker as children of one process, on one folder of data."""
