"""`make run SYSTEM=screenshots`: sample pages, the API, a worker with its browser and, where it is installed, Redis; one folder of data."""
