"""`make run SYSTEM=reports`: the stand-in model, the API and a worker as children of one process, on one folder of data."""
