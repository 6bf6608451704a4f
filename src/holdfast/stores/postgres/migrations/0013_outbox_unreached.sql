-- How many tries did not reach the target of a message: counted apart from `tries`, which may park it.
ALTER TABLE holdfast.outbox ADD COLUMN unreached int NOT NULL DEFAULT 0;
ALTER TABLE holdfast.outbox_sent ADD COLUMN unreached int NOT NULL DEFAULT 0;

-- Beside the function of five arguments, which relays of the version before still call.
CREATE FUNCTION holdfast.put_off_messages(
    numbers bigint[], epochs bigint[], waits interval[], errors text[], were_tried boolean[], were_away boolean[]
) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    now timestamptz;
    topics text[];
    keys text[];
    done bigint;
    before bigint;
BEGIN
    PERFORM holdfast.lock_topics(
        (SELECT array_agg(DISTINCT o.topic) FROM holdfast.outbox o WHERE o.number = ANY (numbers)));
    now := holdfast.clock();
    SELECT count(*) INTO before
      FROM unnest(numbers, epochs) AS s(number, epoch)
           JOIN holdfast.outbox o ON o.number = s.number AND o.epoch = s.epoch AND o.failed_epoch = s.epoch;
    WITH changed AS (
        UPDATE holdfast.outbox o
           SET tries = o.tries + s.tried::int, unreached = o.unreached + s.away::int,
               error = coalesce(nullif(s.error, ''), o.error), failed_epoch = s.epoch,
               line = CASE WHEN s.wait IS NULL THEN 3 ELSE 2 END, not_before = now + s.wait,
               parked_at = CASE WHEN s.wait IS NULL THEN now END
          FROM unnest(numbers, epochs, waits, errors, were_tried, were_away) AS s(number, epoch, wait, error, tried, away)
         WHERE o.number = s.number AND o.epoch = s.epoch AND o.failed_epoch <> s.epoch AND o.line <> 3
        RETURNING o.topic, o.key, o.line)
    SELECT count(*), array_agg(topic) FILTER (WHERE line = 3), array_agg(key) FILTER (WHERE line = 3)
      INTO done, topics, keys FROM changed;
    PERFORM holdfast.let_up(topics, keys);
    RETURN done + before;
END $$;

CREATE OR REPLACE FUNCTION holdfast.messages_delivered(numbers bigint[], epochs bigint[]) RETURNS bigint LANGUAGE plpgsql
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
    PERFORM holdfast.let_up(topics, keys);
    RETURN done + before;
END $$;

CREATE OR REPLACE FUNCTION holdfast.replay_messages(
    a_topic text, first_number bigint, last_number bigint, most int, OUT done bigint, OUT largest bigint
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    now timestamptz;
    chosen bigint[];
BEGIN
    PERFORM holdfast.lock_topics(ARRAY[a_topic]);
    now := holdfast.clock();
    SELECT array_agg(c.number), max(c.number), count(*) INTO chosen, largest, done
      FROM (SELECT u.number
              FROM ((SELECT s.number FROM holdfast.outbox_sent s
                      WHERE s.topic = a_topic AND s.number BETWEEN first_number AND last_number
                      ORDER BY s.number LIMIT most)
                    UNION ALL
                    (SELECT o.number FROM holdfast.outbox o
                      WHERE o.topic = a_topic AND o.line = 3 AND o.number BETWEEN first_number AND last_number
                      ORDER BY o.number LIMIT most)) u
             ORDER BY u.number LIMIT most) c;
    UPDATE holdfast.outbox
       SET line = 0, tries = 0, unreached = 0, error = NULL, parked_at = NULL, since = now, epoch = 0, failed_epoch = 0
     WHERE number = ANY (chosen);
    WITH back AS (DELETE FROM holdfast.outbox_sent WHERE number = ANY (chosen) RETURNING *)
    INSERT INTO holdfast.outbox (number, id, topic, key, body, headers, created_at, since)
    SELECT number, id, topic, key, body, headers, created_at, now FROM back;
END $$;
