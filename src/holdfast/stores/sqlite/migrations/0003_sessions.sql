-- Which queues a worker serves: a JSON array; null: whichever its tasks are in.
ALTER TABLE holdfast_session ADD COLUMN queues TEXT;
