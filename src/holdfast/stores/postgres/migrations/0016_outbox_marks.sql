-- A transaction that stays open keeps VACUUM from removing what relayed messages leave behind, and a relay that begins at the
-- lowest number walks over all of it. Relays therefore pass a mark: a snapshot, and for each line the lowest number that it
-- had then. What the snapshot did not see is found by the transaction that moved it, so a mark hides nothing (ADR 0025).

-- The transaction that put the message into the line it is in. The default is evaluated once for the rows that are there.
ALTER TABLE holdfast.outbox ADD COLUMN entered xid8 NOT NULL DEFAULT pg_current_xact_id();

CREATE FUNCTION holdfast.outbox_enter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.entered := pg_current_xact_id();
    RETURN NEW;
END $$;
-- Statements that move many set it themselves, which costs less.
CREATE TRIGGER outbox_enter BEFORE UPDATE OF line, not_before ON holdfast.outbox
    FOR EACH ROW WHEN (NEW.entered = OLD.entered) EXECUTE FUNCTION holdfast.outbox_enter();

-- Expressions, because only this index may answer who has entered since: a plan by number would walk over what is dead.
CREATE INDEX outbox_entered ON holdfast.outbox
    ((topic || ''), (line + 0), entered, (number + 0), (not_before AT TIME ZONE 'UTC'));

-- The lowest number that this line can have now: that of the mark, or of a message that has entered the line since, by a
-- transaction that began after the snapshot or was open in it. In PL/pgSQL, which keeps its plans; its callers forbid scans of
-- the whole table.
CREATE FUNCTION holdfast.outbox_from(topics text[], a_line int, mark bigint, seen pg_snapshot) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE WHEN seen IS NULL THEN 0 ELSE least(mark, (
        SELECT min(n.number)
          FROM unnest(topics) AS t(topic)
               CROSS JOIN (SELECT pg_snapshot_xmax(seen) AS low, '18446744073709551615'::xid8 AS high
                           UNION ALL SELECT x, x FROM pg_snapshot_xip(seen) x) unseen
               CROSS JOIN LATERAL (SELECT min(o.number + 0) AS number FROM holdfast.outbox o
                                    WHERE o.topic || '' = t.topic AND o.line + 0 = a_line AND o.number + 0 < mark
                                      AND o.entered BETWEEN unseen.low AND unseen.high) n)) END;
END $$;

-- The same for the time until which messages are away.
CREATE FUNCTION holdfast.outbox_due_from(topics text[], mark timestamptz, seen pg_snapshot) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE WHEN seen IS NULL THEN '-infinity' ELSE least(mark, (
        SELECT min(n.not_before)
          FROM unnest(topics) AS t(topic)
               CROSS JOIN (SELECT pg_snapshot_xmax(seen) AS low, '18446744073709551615'::xid8 AS high
                           UNION ALL SELECT x, x FROM pg_snapshot_xip(seen) x) unseen
               CROSS JOIN LATERAL (SELECT min(o.not_before) AS not_before FROM holdfast.outbox o
                                    WHERE o.topic || '' = t.topic AND o.line + 0 = 2
                                      AND o.not_before AT TIME ZONE 'UTC' < mark AT TIME ZONE 'UTC'
                                      AND o.entered BETWEEN unseen.low AND unseen.high) n)) END;
END $$;

-- A new mark, from the one before (none: all nulls). STABLE: all of it is one snapshot. Where a line is empty any number will
-- do: `newest`, the highest that the relay has taken so far, leaves the least to walk over.
CREATE FUNCTION holdfast.outbox_mark(
    topics text[], newest bigint, INOUT seen pg_snapshot, INOUT marks bigint[], INOUT due timestamptz
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    before pg_snapshot := seen;
    lowest bigint;
    first_due timestamptz;
BEGIN
    seen := pg_current_snapshot();
    FOR a_line IN 0..2 LOOP
        lowest := holdfast.outbox_from(topics, a_line, marks[a_line + 1], before);
        SELECT min(l.number) INTO lowest
          FROM unnest(topics) AS t(topic)
               CROSS JOIN LATERAL (SELECT o.number FROM holdfast.outbox o
                                    WHERE o.topic = t.topic AND o.line = a_line AND o.number >= lowest
                                    ORDER BY o.number LIMIT 1) l;
        marks[a_line + 1] := coalesce(lowest, newest);
    END LOOP;
    first_due := holdfast.outbox_due_from(topics, due, before);
    SELECT min(d.not_before) INTO first_due
      FROM unnest(topics) AS t(topic)
           CROSS JOIN LATERAL (SELECT o.not_before FROM holdfast.outbox o
                                WHERE o.topic = t.topic AND o.not_before >= first_due
                                ORDER BY o.not_before LIMIT 1) d;
    due := coalesce(first_due, holdfast.clock());
END $$;

-- Relays of the version before call the next three without a mark.

-- Of each key at least the first, and of all no more than the next batches need: the others would only step behind again.
DROP FUNCTION holdfast.let_up(text[], text[]);
CREATE FUNCTION holdfast.let_up(
    topics text[], keys text[], seen pg_snapshot DEFAULT NULL, marks bigint[] DEFAULT NULL
) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    those text[] := ARRAY(SELECT DISTINCT u.topic FROM unnest(topics, keys) AS u(topic, key) WHERE u.key IS NOT NULL);
    behind_from bigint;
    away_from bigint;
BEGIN
    IF cardinality(those) = 0 THEN
        RETURN;
    END IF;
    behind_from := holdfast.outbox_from(those, 1, marks[2], seen);
    away_from := holdfast.outbox_from(those, 2, marks[3], seen);
    UPDATE holdfast.outbox SET line = 0, entered = pg_current_xact_id()
     WHERE line = 1 AND number IN (
        SELECT b.number
          FROM (SELECT DISTINCT u.topic, u.key FROM unnest(topics, keys) AS u(topic, key)
                 WHERE u.key IS NOT NULL) k
               LEFT JOIN LATERAL (SELECT a.number FROM holdfast.outbox a
                                   WHERE a.topic = k.topic AND a.key = k.key AND a.line = 2 AND a.number >= away_from
                                   ORDER BY a.number LIMIT 1) first_away ON true
               CROSS JOIN LATERAL (SELECT o.number, row_number() OVER (ORDER BY o.number) AS place FROM holdfast.outbox o
                                    WHERE o.topic = k.topic AND o.key = k.key AND o.line = 1 AND o.number >= behind_from
                                    ORDER BY o.number LIMIT 100) b
         WHERE first_away.number IS NULL OR b.number < first_away.number
         ORDER BY b.place, b.number LIMIT greatest(100, 2 * cardinality(keys)));
END $$;

DROP FUNCTION holdfast.take_messages(text[], boolean[], int, interval, bigint, boolean);
CREATE FUNCTION holdfast.take_messages(
    topics text[], stricts boolean[], most int, span interval, new_epoch bigint, again boolean,
    seen pg_snapshot DEFAULT NULL, marks bigint[] DEFAULT NULL, due timestamptz DEFAULT NULL
) RETURNS SETOF holdfast.outbox LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    now timestamptz;
    due_from timestamptz;
    behind_from bigint;
    away_from bigint;
    taken bigint[] := '{}';
    free bigint[];
    blocked bigint[];
    found_now bigint;
    last_seen bigint;
    look int := most;
BEGIN
    PERFORM holdfast.lock_topics(topics);
    IF again THEN
        RETURN QUERY SELECT o.* FROM holdfast.outbox o
                      WHERE o.topic = ANY (topics) AND o.line = 2 AND o.epoch = new_epoch ORDER BY o.number;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    now := holdfast.clock();
    due_from := holdfast.outbox_due_from(topics, due, seen);
    UPDATE holdfast.outbox SET line = 0, not_before = NULL, entered = pg_current_xact_id()
     WHERE number IN (SELECT o.number FROM unnest(topics) AS t(topic)
                       CROSS JOIN LATERAL (SELECT w.number FROM holdfast.outbox w
                                            WHERE w.topic = t.topic AND w.not_before >= due_from AND w.not_before <= now
                                            ORDER BY w.not_before LIMIT 1000) o);
    -- Only now: what has just come back into line has entered it.
    last_seen := holdfast.outbox_from(topics, 0, marks[1], seen) - 1;
    behind_from := holdfast.outbox_from(topics, 1, marks[2], seen);
    away_from := holdfast.outbox_from(topics, 2, marks[3], seen);
    FOR round IN 1..10 LOOP
        SELECT array_agg(s.number ORDER BY s.number) FILTER (WHERE NOT s.is_blocked),
               array_agg(s.number) FILTER (WHERE s.is_blocked), count(*), max(s.number)
          INTO free, blocked, found_now, last_seen
          FROM (SELECT o.number,
                       o.key IS NOT NULL AND (
                           EXISTS (SELECT FROM holdfast.outbox b WHERE b.topic = t.topic AND b.key = o.key AND b.line = 2
                                                                   AND b.number >= away_from AND b.number < o.number)
                        -- What steps behind in this very call has something before it that is found here as well.
                        OR EXISTS (SELECT FROM holdfast.outbox b WHERE b.topic = t.topic AND b.key = o.key AND b.line = 1
                                                                   AND b.number >= behind_from AND b.number < o.number)
                        OR (t.strict AND EXISTS (
                                SELECT FROM holdfast.outbox b WHERE b.topic = t.topic AND b.key = o.key
                                                                AND b.line = 3 AND b.number < o.number))) AS is_blocked
                  FROM unnest(topics, stricts) AS t(topic, strict)
                       CROSS JOIN LATERAL (SELECT w.number, w.key FROM holdfast.outbox w
                                            WHERE w.topic = t.topic AND w.line = 0 AND w.number > last_seen
                                            ORDER BY w.number LIMIT look) o
                 ORDER BY o.number LIMIT look) s;
        EXIT WHEN found_now = 0;
        taken := taken || coalesce(free, '{}');
        IF blocked IS NOT NULL THEN
            UPDATE holdfast.outbox SET line = 1, entered = pg_current_xact_id() WHERE number = ANY (blocked);
        END IF;
        EXIT WHEN cardinality(taken) >= most OR found_now < look;
        look := 1000;
    END LOOP;
    RETURN QUERY
    WITH ours AS (
        UPDATE holdfast.outbox SET line = 2, not_before = now + span, epoch = new_epoch, entered = pg_current_xact_id()
         WHERE number = ANY (taken[1:most])
        RETURNING outbox.*)
    SELECT * FROM ours ORDER BY ours.number;
END $$;

DROP FUNCTION holdfast.messages_delivered(bigint[], bigint[]);
CREATE FUNCTION holdfast.messages_delivered(
    numbers bigint[], epochs bigint[], seen pg_snapshot DEFAULT NULL, marks bigint[] DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    topics text[];
    keys text[];
    done bigint;
    before bigint;
BEGIN
    PERFORM holdfast.lock_topics(
        (SELECT array_agg(DISTINCT o.topic) FROM holdfast.outbox o WHERE o.number = ANY (numbers)));
    SELECT count(*) INTO before
      FROM unnest(numbers, epochs) AS s(number, epoch)
           JOIN holdfast.outbox_sent x ON x.number = s.number AND x.epoch = s.epoch;
    WITH gone AS (
        DELETE FROM holdfast.outbox o USING unnest(numbers, epochs) AS s(number, epoch)
         WHERE o.number = s.number AND o.epoch = s.epoch
        RETURNING o.*),
    kept AS (
        INSERT INTO holdfast.outbox_sent
               (number, id, topic, key, body, headers, tries, unreached, error, created_at, epoch, published_at)
        SELECT number, id, topic, key, body, headers, tries, unreached, error, created_at, epoch, holdfast.clock() FROM gone)
    SELECT count(*), array_agg(topic), array_agg(key) INTO done, topics, keys FROM gone;
    PERFORM holdfast.let_up(topics, keys, seen, marks);
    RETURN done + before;
END $$;

CREATE FUNCTION holdfast.next_message(topics text[], seen pg_snapshot, marks bigint[], due timestamptz) RETURNS interval
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    lowest bigint := holdfast.outbox_from(topics, 0, marks[1], seen);
    due_from timestamptz := holdfast.outbox_due_from(topics, due, seen);
BEGIN
    RETURN (SELECT min(CASE WHEN EXISTS (SELECT FROM holdfast.outbox o
                                          WHERE o.topic = t.topic AND o.line = 0 AND o.number >= lowest) THEN interval '0'
                            ELSE (SELECT greatest(o.not_before - holdfast.clock(), interval '0') FROM holdfast.outbox o
                                   WHERE o.topic = t.topic AND o.not_before >= due_from
                                   ORDER BY o.not_before LIMIT 1) END)
              FROM unnest(topics) AS t(topic));
END $$;
