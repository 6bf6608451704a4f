-- The event log.

CREATE SEQUENCE holdfast.event_seq;

-- Event numbers contain transaction ids, and a new cluster starts to count those at a low number. A database that is
-- restored into a new cluster adds this offset, so that its new events come after the restored ones. The offset is a
-- sequence because a dump includes the value of a sequence, and because every writer must see the newest value, whatever
-- its snapshot.
CREATE SEQUENCE holdfast.event_offset MINVALUE 0 START 0;

CREATE FUNCTION holdfast.event_offset() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT coalesce(pg_sequence_last_value('holdfast.event_offset'), 0) $$;

-- The number of the next event: a transaction id in the upper bits, a running number in the lower 20.
-- It is not below the id of its own transaction. So the events of a transaction that is still open are above the
-- snapshot's xmin, and a reader that stops at xmin misses none. A plain sequence would not do: a lower number may commit
-- later than a higher one.
-- It is also not below the newest id that existed when the statement began. A transaction that waited for another one must
-- number its move after the move that it waited for.
CREATE FUNCTION holdfast.event_number() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT ((greatest(pg_current_xact_id()::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)
            + holdfast.event_offset()) << 20)
          | (nextval('holdfast.event_seq') & 1048575) $$;

-- One row records the same move of many jobs. Jobs, leases, attempts and ends point to their event rows, so the history of
-- one job needs no index over the arrays. A rare move of a single job has its id in job_id (ADR 0003).
-- lane to waits are for statistics: folding the log reads neither its jobs nor their lanes' names. A value that all jobs share is
-- stored once.
-- toast_tuple_target keeps batches of up to about 300 jobs in the row. STORAGE EXTERNAL turns compression off: it would
-- cost CPU and save little on ids.
CREATE TABLE holdfast.event (
    seq        bigint PRIMARY KEY,
    at         timestamptz NOT NULL,
    session_id bigint,
    kind       smallint NOT NULL,
    job_ids    uuid[] NOT NULL,
    epochs     bigint[],
    attempts   smallint[],
    durations  int[],                   -- milliseconds
    metas      jsonb[],
    job_id     uuid,
    lane       int,                     -- of all jobs
    lanes      int[],                   -- of each job, if they differ
    waits      int[]                    -- ms: how long each was due when it was claimed; if complete: how long it had been queued then
) WITH (toast_tuple_target = 8160);
ALTER TABLE holdfast.event ALTER job_ids SET STORAGE EXTERNAL, ALTER epochs SET STORAGE EXTERNAL,
    ALTER attempts SET STORAGE EXTERNAL, ALTER durations SET STORAGE EXTERNAL, ALTER lanes SET STORAGE EXTERNAL,
    ALTER waits SET STORAGE EXTERNAL;
CREATE INDEX event_job ON holdfast.event (job_id) WHERE job_id IS NOT NULL;

-- A duration as an event stores it.
CREATE FUNCTION holdfast.milliseconds(duration interval) RETURNS int LANGUAGE sql IMMUTABLE AS
$$ SELECT greatest(0, least(date_part('epoch', duration) * 1000, 2147483647))::int $$;

-- Whether the newest event is above the number that this cluster would give to the next one. Then the offset has to be
-- raised. A snapshot ends before open transactions, so our own transaction and its events are added.
CREATE FUNCTION holdfast.event_numbers_lag() RETURNS boolean LANGUAGE sql VOLATILE AS
$$ SELECT coalesce((SELECT max(seq) >> 20 FROM holdfast.event)
                   >= greatest(pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
                               pg_current_xact_id_if_assigned()::text::bigint + 1) + holdfast.event_offset(), false) $$;
