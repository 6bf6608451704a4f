-- Lanes: their numbers, and what keeps claims away from them.

-- The number of a lane. A new lane is created.
CREATE FUNCTION holdfast.lane_number(a_queue text, a_task text, a_dependency text, a_shard text, is_fair boolean) RETURNS int LANGUAGE plpgsql AS $$
DECLARE found_id int;
BEGIN
    SELECT id INTO found_id FROM holdfast.lane
     WHERE queue = a_queue AND task = a_task AND dependency = a_dependency AND shard = a_shard AND fair = is_fair;
    IF found_id IS NULL THEN
        INSERT INTO holdfast.lane (queue, task, dependency, shard, fair) VALUES (a_queue, a_task, a_dependency, a_shard, is_fair)
            ON CONFLICT DO NOTHING;
        SELECT id INTO found_id FROM holdfast.lane
         WHERE queue = a_queue AND task = a_task AND dependency = a_dependency AND shard = a_shard AND fair = is_fair;
    END IF;
    RETURN found_id;
END $$;

-- The numbers of many lanes, in the order given. New lanes are created in sorted order, so that two callers cannot wait for
-- each other.
CREATE FUNCTION holdfast.lane_numbers(queues text[], tasks text[], dependencies text[], shards text[], fairs boolean[])
RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE found_ids int[];
BEGIN
    FOR turn IN 1 .. 2 LOOP
        SELECT array_agg(l.id ORDER BY w.place) INTO found_ids
          FROM unnest(queues, tasks, dependencies, shards, fairs) WITH ORDINALITY AS w(queue, task, dependency, shard, fair, place)
          LEFT JOIN LATERAL (SELECT x.id FROM holdfast.lane x WHERE x.queue = w.queue AND x.task = w.task
                                AND x.dependency = w.dependency AND x.shard = w.shard AND x.fair = w.fair OFFSET 0) l ON true;
        EXIT WHEN turn = 2 OR array_position(found_ids, NULL) IS NULL;
        INSERT INTO holdfast.lane (queue, task, dependency, shard, fair)
        SELECT w.queue, w.task, w.dependency, w.shard, w.fair
          FROM unnest(found_ids, queues, tasks, dependencies, shards, fairs) AS w(id, queue, task, dependency, shard, fair)
         WHERE w.id IS NULL ORDER BY w.queue, w.task, w.dependency, w.shard, w.fair
            ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN found_ids;
END $$;

-- Pauses. Claims skip a lane that a row covers, until the given time ('infinity': until a person resumes it). The table is
-- almost always empty.
CREATE TABLE holdfast.hold (
    kind   text NOT NULL,               -- queue, task, lane, dependency, schedule, maintenance
    name   text NOT NULL,
    cause  text NOT NULL,
    until  timestamptz NOT NULL,
    reason text NOT NULL,
    by     text NOT NULL,
    at     timestamptz NOT NULL,
    token  uuid,                        -- identifies the call of a person, so that a repeated request is recognized
    PRIMARY KEY (kind, name, cause)
);

-- Whether this maintenance task is paused. Most of the time the answer comes from an empty index.
CREATE FUNCTION holdfast.paused(duty text) RETURNS boolean LANGUAGE sql VOLATILE AS
$$ SELECT EXISTS (SELECT FROM holdfast.hold h WHERE h.kind = 'maintenance' AND h.name = duty AND h.until > holdfast.clock()) $$;

-- The circuit breaker of a dependency, shared by all workers. It is changed by compare-and-set on its version.
CREATE TABLE holdfast.breaker (
    dependency text NOT NULL,
    shard      text NOT NULL,
    version    bigint NOT NULL,
    holding    boolean NOT NULL,        -- claims skip its lanes
    value      jsonb NOT NULL,
    PRIMARY KEY (dependency, shard)
) WITH (fillfactor = 50);
CREATE INDEX breaker_holding ON holdfast.breaker (dependency, shard) WHERE holding;

-- The last report of each worker about a dependency. The table is unlogged: after a crash of the server all workers report
-- again.
CREATE UNLOGGED TABLE holdfast.report (
    dependency text NOT NULL,
    shard      text NOT NULL,
    session_id bigint NOT NULL,
    at         timestamptz NOT NULL,
    version    bigint NOT NULL,         -- of the breaker that the vote is about
    vote       boolean NOT NULL,
    capacity   int NOT NULL,            -- how many calls the worker allows itself at a time
    in_flight  int NOT NULL,
    latency    float8,
    calls      bigint NOT NULL,
    failures   bigint NOT NULL,
    PRIMARY KEY (dependency, shard, session_id)
) WITH (fillfactor = 50);

-- Which of these lanes are held by a pause or a breaker. A *trial* ignores breakers. Each lane costs a few index look-ups,
-- however many rows `hold` has. The plan is generic, because planning would cost more than the query.
CREATE FUNCTION holdfast.held_lanes(lanes int[], trial boolean) RETURNS int[] LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN (SELECT coalesce(array_agg(l.id), '{}') FROM holdfast.lane l
     WHERE l.id = ANY (lanes)
       AND (EXISTS (SELECT FROM holdfast.hold h WHERE h.kind = 'queue' AND h.name = l.queue AND h.until > holdfast.clock())
         OR EXISTS (SELECT FROM holdfast.hold h WHERE h.kind = 'task' AND h.name = l.task AND h.until > holdfast.clock())
         OR EXISTS (SELECT FROM holdfast.hold h WHERE h.kind = 'lane' AND h.until > holdfast.clock()
                       AND h.name = concat(l.queue, '/', l.task, '@' || nullif(l.dependency, ''), '#' || nullif(l.shard, '')))
         OR (l.dependency <> ''
             AND (EXISTS (SELECT FROM holdfast.hold h WHERE h.kind = 'dependency' AND h.until > holdfast.clock()
                             AND h.name IN (l.dependency, concat(l.dependency, '#', l.shard)))
               OR (NOT trial AND coalesce((SELECT b.holding FROM holdfast.breaker b
                                            WHERE b.dependency = l.dependency AND b.shard = l.shard), false))))));
END $$;
