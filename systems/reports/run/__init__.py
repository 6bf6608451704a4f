"""`make run SYSTEM=reports`: the stand-in model, the API and a worker, on one data folder."""
