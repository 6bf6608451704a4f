"""`make run SYSTEM=screenshots`: sample pages, API, worker and Redis, if installed, on one data folder."""
