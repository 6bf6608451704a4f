-- Fair lanes: the positions of jobs are assigned after the enqueue, so that owners take turns (ADR 0007).

-- One row for each priority of a fair lane: no staged job stands before head, and last is the latest pass that was given.
CREATE TABLE holdfast.line (
    lane int NOT NULL,
    prio smallint NOT NULL,
    head bigint NOT NULL,
    last bigint NOT NULL,
    PRIMARY KEY (lane, prio)
) WITH (fillfactor = 50);

-- The latest pass of each owner.
CREATE TABLE holdfast.flow (
    lane  int NOT NULL,
    prio  smallint NOT NULL,
    owner text NOT NULL,
    last  bigint NOT NULL,
    PRIMARY KEY (lane, prio, owner)
) WITH (fillfactor = 70);

CREATE TABLE holdfast.owner_weight (
    owner  text PRIMARY KEY,
    weight float8 NOT NULL
);

-- stage: give passes to the new jobs of these fair lanes, by the rule of `holdfast.domain.fairness.place`. At most *most* of
-- each lane and priority, oldest first. Returns how many jobs got one. Its cost does not grow with lanes that have no new
-- jobs.
-- *since* limits how far back it looks. The old positions of staged jobs are dead rows, and those pile up while a
-- transaction holds an old snapshot.
-- A lane has one stager at a time. Another one skips the lane.
-- Call it in a transaction of its own, because it does not wait for the disk. If its work is lost, all jobs are where they
-- were before.
CREATE FUNCTION holdfast.stage(lanes int[], prios int[], since bigint, most int, unplaced bigint, step bigint)
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
    -- With the lock held, every later statement sees the work of the stager before.
    FOR a_lane, a_prio, back IN
        SELECT u.lane, u.prio, n.last FROM unnest(my_lanes, my_prios) AS u(lane, prio)
          JOIN holdfast.line n ON n.lane = u.lane AND n.prio = u.prio WHERE n.last >= unplaced / 2
    LOOP
        SELECT coalesce((SELECT r.ord FROM holdfast.ready r WHERE r.lane = a_lane AND r.prio = a_prio AND r.ord < unplaced
                          ORDER BY r.ord LIMIT 1), back) INTO back;
        CONTINUE WHEN back < unplaced / 2;
        -- Passes must stay below *unplaced*, however long a lane lives. So they start at zero again. That moves every job
        -- of the lane, once in half a billion jobs.
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
        -- Each job looks up its owner. A join by owner would compare every pair, where each job has an owner of its own.
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
