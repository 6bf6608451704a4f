-- Which queues a worker serves; null: whichever its tasks are in.
ALTER TABLE holdfast.session ADD COLUMN queues text[];

-- Event numbers are made of transaction ids, which begin low in a new cluster: a database that was restored into one from a
-- dump adds an offset, so that its new events stand behind those it brought along. It is kept in a sequence because a
-- dump carries its value along, and because a transaction that writes an event must see the newest value, whatever its snapshot.
CREATE SEQUENCE holdfast.event_offset MINVALUE 0 START 0;

CREATE FUNCTION holdfast.event_offset() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT coalesce(pg_sequence_last_value('holdfast.event_offset'), 0) $$;

CREATE OR REPLACE FUNCTION holdfast.event_number() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT ((greatest(pg_current_xact_id()::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)
            + holdfast.event_offset()) << 20)
          | (nextval('holdfast.event_seq') & 1048575) $$;

-- Whether the newest event stands above what this cluster would number the next one: then the offset has to be raised.
-- A snapshot ends before transactions that are open, our own among them, and its events.
CREATE FUNCTION holdfast.event_numbers_lag() RETURNS boolean LANGUAGE sql VOLATILE AS
$$ SELECT coalesce((SELECT max(seq) >> 20 FROM holdfast.event)
                   >= greatest(pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
                               pg_current_xact_id_if_assigned()::text::bigint + 1) + holdfast.event_offset(), false) $$;
