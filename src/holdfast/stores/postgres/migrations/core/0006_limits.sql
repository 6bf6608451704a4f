-- Limits: concurrency, rates and quotas.

-- The slots of a concurrency limit. A slot is taken while the lease that it names exists. So nothing has to be freed when a
-- job ends, and a crash leaks nothing.
CREATE TABLE holdfast.slot (
    scope  text NOT NULL,
    n      int NOT NULL,
    job_id uuid,
    epoch  bigint,
    PRIMARY KEY (scope, n)
) WITH (fillfactor = 50);

-- Rate limits by GCRA. tat is the theoretical arrival time: when everything that was admitted so far would have arrived at
-- an even rate.
CREATE TABLE holdfast.meter (
    scope text PRIMARY KEY,
    tat   timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Quotas: how much of the latest UTC day or month is used.
CREATE TABLE holdfast.usage (
    scope  text NOT NULL,
    period text NOT NULL,               -- day, month
    begins timestamptz NOT NULL,
    used   bigint NOT NULL,
    PRIMARY KEY (scope, period)
) WITH (fillfactor = 50);

-- How many jobs may be claimed under these limits, and the slots that they may fill. The limits come in the order of their
-- scopes. The slots stay locked until the end of the transaction, so two claims never count on the same slot.
-- The lock timeout is short, because a frozen process may hold the row of a meter.
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
            -- The limit may have been higher before. Jobs in slots above it take up free slots below it.
            SELECT count(*) INTO beyond FROM holdfast.slot s WHERE s.scope = scopes[i] AND s.n > concurrencies[i]
               AND EXISTS (SELECT FROM holdfast.lease l WHERE l.job_id = s.job_id AND l.epoch = s.epoch OFFSET 0);
            SELECT array_agg(x.n) INTO mine FROM (
                SELECT s.n FROM holdfast.slot s WHERE s.scope = scopes[i] AND s.n <= concurrencies[i]
                   AND NOT EXISTS (SELECT FROM holdfast.lease l WHERE l.job_id = s.job_id AND l.epoch = s.epoch OFFSET 0)
                 ORDER BY s.n LIMIT room + beyond FOR UPDATE OF s SKIP LOCKED) x;
            -- Check again in a new statement. A slot that was taken after the first statement began still looked free to it.
            SELECT coalesce(array_agg(s.n ORDER BY s.n), '{}') INTO mine FROM holdfast.slot s WHERE s.scope = scopes[i] AND s.n = ANY (mine)
               AND NOT EXISTS (SELECT FROM holdfast.lease l WHERE l.job_id = s.job_id AND l.epoch = s.epoch OFFSET 0);
            IF cardinality(mine) < room + beyond THEN  -- slots are created when they are first needed
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

-- By how many seconds the admitted work is ahead of an even rate, at most *per*. It is further ahead only if the clock was set back or
-- the limit was changed, which may not stop a lane for long: then it counts as not ahead at all. What is added is rounding.
CREATE FUNCTION holdfast.ahead(tat timestamptz, per float8) RETURNS float8 LANGUAGE sql VOLATILE AS
$$ SELECT CASE WHEN x.ahead > per * 1.00001 + 0.001 THEN 0 ELSE least(greatest(x.ahead, 0), per) END
     FROM (SELECT extract(epoch FROM tat - holdfast.clock())::float8 AS ahead) x $$;

-- Record that these jobs were claimed under the limits that `room` was asked about.
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

-- When the UTC day or month that contains a moment begins, and when it ends.
CREATE FUNCTION holdfast.period_begins(period text, at timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS
$$ SELECT date_trunc(period, at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' $$;

CREATE FUNCTION holdfast.period_ends(period text, at timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS
$$ SELECT (date_trunc(period, at AT TIME ZONE 'UTC') + ('1 ' || period)::interval) AT TIME ZONE 'UTC' $$;

-- charge: each group is charged as a whole or not at all. The pairs (scope, period) are distinct and sorted, so that two
-- callers cannot wait for each other. The level of a day or month is what was used. The level of a rate is `ahead` (of
-- *pers*, in seconds). A charge fits when level + cost stays within its capacity. A negative cost gives back, but not below
-- zero.
-- Returns one row for each refused group: the charge that has to wait longest, its level, and the wait in seconds.
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
            -- The row of an earlier period is locked too. Otherwise two first charges of a period would both count from zero.
            SELECT CASE WHEN u.begins >= holdfast.period_begins(periods[i], at) THEN u.used END INTO found_level FROM holdfast.usage u
             WHERE u.scope = scopes[i] AND u.period = periods[i] FOR UPDATE;
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
    UPDATE holdfast.usage u SET begins = holdfast.period_begins(u.period, at), used = greatest(round(x.level), 0)
      FROM unnest(scopes, periods, levels, touched) x(scope, period, level, touched)
     WHERE x.touched AND u.scope = x.scope AND u.period = x.period;
    UPDATE holdfast.meter m SET tat = at + make_interval(secs => x.level)
      FROM unnest(scopes, periods, levels, touched) x(scope, period, level, touched)
     WHERE x.touched AND x.period = 'rate' AND m.scope = x.scope;
END $$;
