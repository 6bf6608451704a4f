-- The numbers of many lanes, in the order given; made if need be, in one order, so that two callers cannot wait for each other.
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

-- Which of these lanes something holds that is in force: a few steps of an index for each lane, however much is held. A
-- *trial* passes breakers. Planned once: the planning would cost more than the look.
CREATE OR REPLACE FUNCTION holdfast.held_lanes(lanes int[], trial boolean) RETURNS int[] LANGUAGE plpgsql
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

-- stage, as before, but for all these lines at once: what it costs does not grow with the lines that have no newcomers.
CREATE OR REPLACE FUNCTION holdfast.stage(lanes int[], prios int[], since bigint, most int, unplaced bigint, step bigint)
RETURNS int LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    my_lanes int[];
    my_prios int[];
    a_lane int;
    a_prio int;
    back bigint;
    staged int;
BEGIN
    SELECT array_agg(w.lane), array_agg(w.prio) INTO my_lanes, my_prios FROM (
        SELECT u.lane, u.prio FROM unnest(lanes, prios) AS u(lane, prio)
         WHERE EXISTS (SELECT FROM holdfast.ready r WHERE r.lane = u.lane AND r.prio = u.prio AND r.ord >= since) OFFSET 0) w
     WHERE pg_try_advisory_xact_lock(1398030151, w.lane);  -- "STAG"
    IF my_lanes IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    -- From here on every statement sees what the stager before has done.
    FOR a_lane, a_prio, back IN
        SELECT u.lane, u.prio, n.last FROM unnest(my_lanes, my_prios) AS u(lane, prio)
          JOIN holdfast.line n ON n.lane = u.lane AND n.prio = u.prio WHERE n.last >= unplaced / 2
    LOOP
        SELECT coalesce((SELECT r.ord FROM holdfast.ready r WHERE r.lane = a_lane AND r.prio = a_prio AND r.ord < unplaced
                          ORDER BY r.ord LIMIT 1), back) INTO back;
        CONTINUE WHEN back < unplaced / 2;
        -- Passes must stay below, however long a lane lives: the line begins at zero again. That moves everybody in
        -- it, once in half a thousand million jobs.
        WITH d AS (DELETE FROM holdfast.ready r WHERE r.lane = a_lane AND r.prio = a_prio AND r.ord < unplaced RETURNING *)
        INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation, run_at, deadline_at, key)
        SELECT d.ord - back, d.id, d.lane, d.prio, d.attempt, d.crashes, d.generation, d.run_at, d.deadline_at, d.key FROM d;
        UPDATE holdfast.flow f SET last = f.last - back WHERE f.lane = a_lane AND f.prio = a_prio;
        UPDATE holdfast.line n SET head = 0, last = n.last - back WHERE n.lane = a_lane AND n.prio = a_prio;
    END LOOP;
    WITH b AS MATERIALIZED (
        SELECT u.lane, u.prio, coalesce(h.ord, n.last, 0) AS base
          FROM unnest(my_lanes, my_prios) AS u(lane, prio)
          LEFT JOIN LATERAL (SELECT x.head, x.last FROM holdfast.line x WHERE x.lane = u.lane AND x.prio = u.prio OFFSET 0) n ON true
          LEFT JOIN LATERAL (SELECT r.ord FROM holdfast.ready r
                              WHERE r.lane = u.lane AND r.prio = u.prio AND r.ord >= coalesce(n.head, 0) AND r.ord < unplaced
                              ORDER BY r.ord LIMIT 1) h ON true
    ), u AS MATERIALIZED (
        SELECT x.t FROM b CROSS JOIN LATERAL (
            SELECT r.ctid AS t FROM holdfast.ready r WHERE r.lane = b.lane AND r.prio = b.prio AND r.ord >= since
             ORDER BY r.ord, r.id LIMIT most FOR UPDATE SKIP LOCKED) x
    ), d AS (
        DELETE FROM holdfast.ready WHERE ctid = ANY (ARRAY(SELECT t FROM u)) RETURNING *
    ), o AS MATERIALIZED (
        -- Looked up for each job: joined by owner, a batch of as many owners as jobs would be compared one with every other.
        SELECT d.*, j.owner, b.base,
               greatest(b.base, f.last + w.stride)
               + (row_number() OVER (PARTITION BY d.lane, d.prio, j.owner ORDER BY d.ord, d.id) - 1) * w.stride AS pass
          FROM d JOIN b ON b.lane = d.lane AND b.prio = d.prio
         CROSS JOIN LATERAL (SELECT coalesce(owner, '') AS owner FROM holdfast.job WHERE id = d.id OFFSET 0) j
         CROSS JOIN LATERAL (SELECT round(step / coalesce((SELECT x.weight FROM holdfast.owner_weight x WHERE x.owner = j.owner), 1))::bigint
                                    AS stride OFFSET 0) w
          LEFT JOIN LATERAL (SELECT x.last FROM holdfast.flow x
                              WHERE x.lane = d.lane AND x.prio = d.prio AND x.owner = j.owner OFFSET 0) f ON true
    ), p AS (
        INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation, run_at, deadline_at, key)
        SELECT least(o.pass, unplaced - 1), o.id, o.lane, o.prio, o.attempt, o.crashes, o.generation, o.run_at, o.deadline_at, o.key FROM o
    ), l AS (
        INSERT INTO holdfast.flow AS f (lane, prio, owner, last)
        SELECT o.lane, o.prio, o.owner, least(max(o.pass), unplaced - 1) FROM o GROUP BY o.lane, o.prio, o.owner
            ON CONFLICT (lane, prio, owner) DO UPDATE SET last = excluded.last
    ), n AS (
        INSERT INTO holdfast.line AS n (lane, prio, head, last)
        SELECT o.lane, o.prio, min(o.base), greatest(min(o.base), least(max(o.pass), unplaced - 1)) FROM o GROUP BY o.lane, o.prio
            ON CONFLICT (lane, prio) DO UPDATE SET head = excluded.head, last = greatest(n.last, excluded.last)
    )
    SELECT count(*) INTO staged FROM o;
    RETURN staged;
END $$;
