"""`make run`: run the gateway, the web app and a worker as children of one process, on one data folder."""
