-- Lanes know their dependency and shard, and whether their line is ordered fairly by owner.
ALTER TABLE holdfast.lane ADD dependency text NOT NULL DEFAULT '', ADD shard text NOT NULL DEFAULT '', ADD fair boolean NOT NULL DEFAULT false;
ALTER TABLE holdfast.lane DROP CONSTRAINT lane_queue_task_key;
ALTER TABLE holdfast.lane ADD UNIQUE (queue, task, dependency, shard, fair);

-- The number of a lane, made if need be.
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

-- As workers of the version before call it.
CREATE OR REPLACE FUNCTION holdfast.lane_number(a_queue text, a_task text) RETURNS int LANGUAGE sql AS
$$ SELECT holdfast.lane_number(a_queue, a_task, '', '', false) $$;

-- What claims pass by, until its time is up ('infinity': until somebody resumes it). Few rows, most days none.
CREATE TABLE holdfast.hold (
    kind   text NOT NULL,               -- queue, task, lane, dependency, duty
    name   text NOT NULL,
    cause  text NOT NULL,
    until  timestamptz NOT NULL,
    reason text NOT NULL,
    by     text NOT NULL,
    at     timestamptz NOT NULL,
    token  uuid,                        -- of a person's call, by which it is known when it is sent again
    PRIMARY KEY (kind, name, cause)
);

-- The breaker of a dependency as all workers share it; changed by compare-and-set on its version.
CREATE TABLE holdfast.breaker (
    dependency text NOT NULL,
    shard      text NOT NULL,
    version    bigint NOT NULL,
    holding    boolean NOT NULL,        -- claims pass its lanes by
    value      jsonb NOT NULL,
    PRIMARY KEY (dependency, shard)
) WITH (fillfactor = 50);
CREATE INDEX breaker_holding ON holdfast.breaker (dependency, shard) WHERE holding;

-- Which of these lanes something holds that is in force. A *trial* passes breakers. Planned once: the planning would
-- cost more than the look.
CREATE FUNCTION holdfast.held_lanes(lanes int[], trial boolean) RETURNS int[] LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN (SELECT coalesce(array_agg(l.id), '{}') FROM holdfast.lane l
     WHERE l.id = ANY (lanes)
       AND (EXISTS (SELECT FROM holdfast.hold h
                     WHERE h.until > holdfast.clock()
                       AND CASE h.kind
                           WHEN 'queue' THEN l.queue = h.name
                           WHEN 'task' THEN l.task = h.name
                           WHEN 'dependency' THEN l.dependency <> '' AND h.name IN (l.dependency, concat(l.dependency, '#', l.shard))
                           WHEN 'lane' THEN h.name = concat(l.queue, '/', l.task, '@' || nullif(l.dependency, ''), '#' || nullif(l.shard, ''))
                           END)
         OR (NOT trial AND EXISTS (SELECT FROM holdfast.breaker b WHERE b.holding AND b.dependency = l.dependency AND b.shard = l.shard))));
END $$;

-- What each worker saw of a dependency, as it last told. Not logged: after a crash of the server all tell it again.
CREATE UNLOGGED TABLE holdfast.report (
    dependency text NOT NULL,
    shard      text NOT NULL,
    session_id bigint NOT NULL,
    at         timestamptz NOT NULL,
    version    bigint NOT NULL,         -- of the breaker that its vote is about
    vote       boolean NOT NULL,
    capacity   int NOT NULL,            -- how many calls at a time it allows itself
    in_flight  int NOT NULL,
    latency    float8,
    calls      bigint NOT NULL,
    failures   bigint NOT NULL,
    PRIMARY KEY (dependency, shard, session_id)
) WITH (fillfactor = 50);

-- Slots of a concurrency limit. A slot is taken while the lease it names exists: nothing has to be freed at a
-- settlement, and nothing leaks in a crash.
CREATE TABLE holdfast.slot (
    scope  text NOT NULL,
    n      int NOT NULL,
    job_id uuid,
    epoch  bigint,
    PRIMARY KEY (scope, n)
) WITH (fillfactor = 50);

-- Rate limits (GCRA): when all that was let through so far would have arrived, had it come evenly.
CREATE TABLE holdfast.meter (
    scope text PRIMARY KEY,
    tat   timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Quotas: how much of the latest day or month (of UTC) was used.
CREATE TABLE holdfast.usage (
    scope  text NOT NULL,
    period text NOT NULL,               -- day, month
    begins timestamptz NOT NULL,
    used   bigint NOT NULL,
    PRIMARY KEY (scope, period)
) WITH (fillfactor = 50);

-- Fair lines: where a line begins (nobody who is placed stands before it), the latest pass given in it, and each owner's.
CREATE TABLE holdfast.line (
    lane int NOT NULL,
    prio smallint NOT NULL,
    head bigint NOT NULL,
    last bigint NOT NULL,
    PRIMARY KEY (lane, prio)
) WITH (fillfactor = 50);

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

-- Where each schedule stands.
CREATE TABLE holdfast.schedule_tick (
    name text PRIMARY KEY,
    last timestamptz,
    due  timestamptz NOT NULL
);

-- stage: those who entered these lines of fair lanes get their passes, by the rule of `holdfast.domain.fairness.place`; up to
-- *most* of each line, oldest first. How many there were. *since*: how far back to look; the places of those who were
-- staged before are dead rows, which pile up while somebody holds an old snapshot open.
-- One stager at a time; who comes second goes on. To be called by itself, as it does not wait for the disk: if it is lost,
-- all stand where they stood.
CREATE FUNCTION holdfast.stage(lanes int[], prios int[], since bigint, most int, unplaced bigint, step bigint)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    staged int := 0;
    moved int;
    a_lane int;
    a_prio int;
    base bigint;
    back bigint;
    known bigint;
BEGIN
    FOR a_lane, a_prio IN SELECT * FROM unnest(lanes, prios) LOOP
        CONTINUE WHEN NOT EXISTS (SELECT FROM holdfast.ready r WHERE r.lane = a_lane AND r.prio = a_prio AND r.ord >= since);
        CONTINUE WHEN NOT pg_try_advisory_xact_lock(1398030151, a_lane);  -- "STAG"
        PERFORM set_config('synchronous_commit', 'off', true);
        -- From here on every statement sees what the stager before has done.
        SELECT n.head, n.last INTO known, base FROM holdfast.line n WHERE n.lane = a_lane AND n.prio = a_prio;
        SELECT r.ord INTO back FROM holdfast.ready r
         WHERE r.lane = a_lane AND r.prio = a_prio AND r.ord >= coalesce(known, 0) AND r.ord < unplaced ORDER BY r.ord LIMIT 1;
        base := coalesce(back, base, 0);
        IF base >= unplaced / 2 THEN
            -- Passes must stay below, however long a lane lives: the line begins at zero again. That moves everybody in
            -- it, once in half a thousand million jobs.
            WITH d AS (DELETE FROM holdfast.ready r WHERE r.lane = a_lane AND r.prio = a_prio AND r.ord < unplaced RETURNING *)
            INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation, run_at, deadline_at, key)
            SELECT d.ord - base, d.id, d.lane, d.prio, d.attempt, d.crashes, d.generation, d.run_at, d.deadline_at, d.key FROM d;
            UPDATE holdfast.flow f SET last = f.last - base WHERE f.lane = a_lane AND f.prio = a_prio;
            UPDATE holdfast.line n SET last = n.last - base WHERE n.lane = a_lane AND n.prio = a_prio;
            base := 0;
        END IF;
        WITH u AS MATERIALIZED (
            SELECT r.ctid AS t FROM holdfast.ready r WHERE r.lane = a_lane AND r.prio = a_prio AND r.ord >= since
             ORDER BY r.ord, r.id LIMIT most FOR UPDATE SKIP LOCKED
        ), d AS (
            DELETE FROM holdfast.ready WHERE ctid = ANY (ARRAY(SELECT t FROM u)) RETURNING *
        ), o AS MATERIALIZED (
            -- Looked up for each job: joined by owner, a batch of as many owners as jobs would be compared one with every other.
            SELECT d.*, j.owner,
                   greatest(base, f.last + w.stride) + (row_number() OVER (PARTITION BY j.owner ORDER BY d.ord, d.id) - 1) * w.stride AS pass
              FROM d
             CROSS JOIN LATERAL (SELECT coalesce(owner, '') AS owner FROM holdfast.job WHERE id = d.id OFFSET 0) j
             CROSS JOIN LATERAL (SELECT round(step / coalesce((SELECT x.weight FROM holdfast.owner_weight x WHERE x.owner = j.owner), 1))::bigint
                                        AS stride OFFSET 0) w
              LEFT JOIN LATERAL (SELECT x.last FROM holdfast.flow x
                                  WHERE x.lane = a_lane AND x.prio = a_prio AND x.owner = j.owner OFFSET 0) f ON true
        ), p AS (
            INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation, run_at, deadline_at, key)
            SELECT least(o.pass, unplaced - 1), o.id, o.lane, o.prio, o.attempt, o.crashes, o.generation, o.run_at, o.deadline_at, o.key FROM o
        ), l AS (
            INSERT INTO holdfast.flow AS f (lane, prio, owner, last)
            SELECT a_lane, a_prio, o.owner, least(max(o.pass), unplaced - 1) FROM o GROUP BY o.owner
                ON CONFLICT (lane, prio, owner) DO UPDATE SET last = excluded.last
            RETURNING f.last
        ), n AS (
            INSERT INTO holdfast.line AS n (lane, prio, head, last)
            SELECT a_lane, a_prio, base, greatest(base, max(l.last)) FROM l
                ON CONFLICT (lane, prio) DO UPDATE SET head = excluded.head, last = greatest(n.last, excluded.last)
        )
        SELECT count(*) INTO moved FROM o;
        staged := staged + moved;
    END LOOP;
    RETURN staged;
END $$;

-- How many may be claimed under these caps (in the order of their scopes), and which slots are there to be filled. They
-- stay locked until the end of the transaction: two claims never count on the same one. Who cannot have a meter soon
-- fails: somebody may be frozen while holding it.
CREATE FUNCTION holdfast.room(scopes text[], concurrencies int[], rates int[], pers interval[], wanted int,
                              OUT room int, OUT slot_scopes text[], OUT slot_numbers int[]) LANGUAGE plpgsql AS $$
DECLARE
    beyond int;
    mine int[];
    added int[];
    newest int;
    behind timestamptz;
    per float8;
BEGIN
    room := wanted; slot_scopes := '{}'; slot_numbers := '{}';
    PERFORM set_config('lock_timeout', '200ms', true);
    FOR i IN 1 .. cardinality(scopes) LOOP
        IF concurrencies[i] IS NOT NULL THEN
            -- Jobs in slots beyond the bound (it was greater before) use up free ones within it.
            SELECT count(*) INTO beyond FROM holdfast.slot s WHERE s.scope = scopes[i] AND s.n > concurrencies[i]
               AND EXISTS (SELECT FROM holdfast.lease l WHERE l.job_id = s.job_id AND l.epoch = s.epoch OFFSET 0);
            SELECT array_agg(x.n) INTO mine FROM (
                SELECT s.n FROM holdfast.slot s WHERE s.scope = scopes[i] AND s.n <= concurrencies[i]
                   AND NOT EXISTS (SELECT FROM holdfast.lease l WHERE l.job_id = s.job_id AND l.epoch = s.epoch OFFSET 0)
                 ORDER BY s.n LIMIT room + beyond FOR UPDATE OF s SKIP LOCKED) x;
            -- Once more, as a new statement: one that was taken after the first had begun looked free to it.
            SELECT coalesce(array_agg(s.n ORDER BY s.n), '{}') INTO mine FROM holdfast.slot s WHERE s.scope = scopes[i] AND s.n = ANY (mine)
               AND NOT EXISTS (SELECT FROM holdfast.lease l WHERE l.job_id = s.job_id AND l.epoch = s.epoch OFFSET 0);
            IF cardinality(mine) < room + beyond THEN  -- they are made when they are first needed
                SELECT coalesce(max(s.n), 0) INTO newest FROM holdfast.slot s WHERE s.scope = scopes[i];
                WITH a AS (
                    INSERT INTO holdfast.slot (scope, n)
                    SELECT scopes[i], generate_series(newest + 1, least(concurrencies[i], newest + room + beyond - cardinality(mine)))
                        ON CONFLICT DO NOTHING RETURNING n
                ) SELECT coalesce(array_agg(a.n), '{}') INTO added FROM a;
                mine := mine || added;
            END IF;
            room := greatest(0, least(room, cardinality(mine) - beyond));
            slot_scopes := slot_scopes || array_fill(scopes[i], ARRAY[cardinality(mine)]);
            slot_numbers := slot_numbers || mine;
        END IF;
        IF rates[i] IS NOT NULL THEN
            per := extract(epoch FROM pers[i]);
            INSERT INTO holdfast.meter (scope, tat) SELECT scopes[i], holdfast.clock()
             WHERE NOT EXISTS (SELECT FROM holdfast.meter m WHERE m.scope = scopes[i]) ON CONFLICT DO NOTHING;
            SELECT m.tat INTO behind FROM holdfast.meter m WHERE m.scope = scopes[i] FOR UPDATE;
            room := greatest(0, least(room, floor((per - holdfast.ahead(behind, per)) * rates[i] / per + 1e-6)::int));
        END IF;
    END LOOP;
END $$;

-- By how many seconds what was let through is ahead of an even flow. Never by more than *per*, unless the clock was set back
-- or the limit was changed: neither must stop a lane for long.
CREATE FUNCTION holdfast.ahead(tat timestamptz, per float8) RETURNS float8 LANGUAGE sql VOLATILE AS
$$ SELECT least(greatest(extract(epoch FROM tat - holdfast.clock())::float8, 0), per) $$;

-- These jobs were claimed under the caps that `room` was asked about.
CREATE FUNCTION holdfast.occupy(slot_scopes text[], slot_numbers int[], job_ids uuid[], epochs bigint[],
                                meters text[], rates int[], pers interval[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.slot s SET job_id = j.job_id, epoch = j.epoch
      FROM (SELECT x.scope, x.n, row_number() OVER (PARTITION BY x.scope ORDER BY x.n) AS place FROM unnest(slot_scopes, slot_numbers) x(scope, n)) f
      JOIN unnest(job_ids, epochs) WITH ORDINALITY j(job_id, epoch, place) ON j.place = f.place
     WHERE s.scope = f.scope AND s.n = f.n;
    UPDATE holdfast.meter m SET tat = holdfast.clock() + make_interval(secs =>
           holdfast.ahead(m.tat, extract(epoch FROM x.per)::float8) + cardinality(job_ids) * extract(epoch FROM x.per)::float8 / x.rate)
      FROM unnest(meters, rates, pers) x(scope, rate, per) WHERE m.scope = x.scope;
END $$;

-- When the day or month of UTC that a moment is in began, and when it ends.
CREATE FUNCTION holdfast.period_begins(period text, at timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS
$$ SELECT date_trunc(period, at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' $$;

CREATE FUNCTION holdfast.period_ends(period text, at timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS
$$ SELECT (date_trunc(period, at AT TIME ZONE 'UTC') + ('1 ' || period)::interval) AT TIME ZONE 'UTC' $$;

-- charge: all of a group or none of it. Keys are distinct (scope, period), in order, so that two callers cannot wait for each
-- other. The level of a day or month is what was used, that of a rate is `ahead` (of *pers*, seconds); a charge fits when
-- level + cost stays within its capacity. Of every group that was refused: which charge has to wait longest, what was its
-- level, and how many seconds.
CREATE FUNCTION holdfast.charge(scopes text[], periods text[], pers float8[], groups int[], keys int[], costs float8[], capacities float8[])
RETURNS TABLE (place int, level float8, wait float8) LANGUAGE plpgsql AS $$
DECLARE
    at timestamptz := holdfast.clock();
    levels float8[] := '{}';
    touched boolean[] := array_fill(false, ARRAY[cardinality(scopes)]);
    began int := 1;
    found_level float8;
    needs float8;
    k int;
BEGIN
    FOR i IN 1 .. cardinality(scopes) LOOP
        IF periods[i] = 'rate' THEN
            INSERT INTO holdfast.meter (scope, tat) SELECT scopes[i], at
             WHERE NOT EXISTS (SELECT FROM holdfast.meter m WHERE m.scope = scopes[i]) ON CONFLICT DO NOTHING;
            SELECT holdfast.ahead(m.tat, pers[i]) INTO found_level FROM holdfast.meter m WHERE m.scope = scopes[i] FOR UPDATE;
        ELSE
            INSERT INTO holdfast.usage (scope, period, begins, used) SELECT scopes[i], periods[i], holdfast.period_begins(periods[i], at), 0
             WHERE NOT EXISTS (SELECT FROM holdfast.usage u WHERE u.scope = scopes[i] AND u.period = periods[i]) ON CONFLICT DO NOTHING;
            SELECT u.used INTO found_level FROM holdfast.usage u
             WHERE u.scope = scopes[i] AND u.period = periods[i] AND u.begins >= holdfast.period_begins(periods[i], at) FOR UPDATE;
        END IF;
        levels[i] := coalesce(found_level, 0);
    END LOOP;
    FOR i IN 1 .. cardinality(groups) LOOP
        k := keys[i];
        IF levels[k] + costs[i] > capacities[i] + 1e-6 THEN
            needs := CASE periods[k] WHEN 'rate' THEN levels[k] + costs[i] - capacities[i]
                                     ELSE extract(epoch FROM holdfast.period_ends(periods[k], at) - at) END;
            IF wait IS NULL OR needs > wait THEN
                place := i; level := levels[k]; wait := needs;
            END IF;
        END IF;
        levels[k] := levels[k] + costs[i];
        CONTINUE WHEN groups[i + 1] = groups[i];
        FOR c IN began .. i LOOP
            IF wait IS NULL THEN
                touched[keys[c]] := true;
            ELSE
                levels[keys[c]] := levels[keys[c]] - costs[c];
            END IF;
        END LOOP;
        IF wait IS NOT NULL THEN
            RETURN NEXT;
        END IF;
        began := i + 1;
        wait := NULL;
    END LOOP;
    UPDATE holdfast.usage u SET begins = holdfast.period_begins(u.period, at), used = round(x.level)
      FROM unnest(scopes, periods, levels, touched) x(scope, period, level, touched)
     WHERE x.touched AND u.scope = x.scope AND u.period = x.period;
    UPDATE holdfast.meter m SET tat = at + make_interval(secs => x.level)
      FROM unnest(scopes, periods, levels, touched) x(scope, period, level, touched)
     WHERE x.touched AND x.period = 'rate' AND m.scope = x.scope;
END $$;

-- The place in line. STABLE, as extract() is: promise more, and the planner will not inline it.
CREATE OR REPLACE FUNCTION holdfast.place(at timestamptz) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT (extract(epoch FROM at) * 1000000)::bigint $$;
