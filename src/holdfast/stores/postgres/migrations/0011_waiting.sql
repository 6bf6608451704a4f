-- How many handlers of a worker wait for queued jobs, once they hold all of its slots; 0: it has a slot to run jobs in.
ALTER TABLE holdfast.session ADD COLUMN waiting integer NOT NULL DEFAULT 0;
