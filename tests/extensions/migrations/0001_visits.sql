-- What the extension has seen of each job.
CREATE TABLE holdfast.visits_seen (job text NOT NULL, kind text NOT NULL, weight bigint NOT NULL);
