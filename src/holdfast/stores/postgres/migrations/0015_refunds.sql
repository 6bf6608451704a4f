-- charge: all of a group or none of it. Keys are distinct (scope, period), in order, so that two callers cannot wait for each
-- other. The level of a day or month is what was used, that of a rate is `ahead` (of *pers*, seconds); a charge fits when
-- level + cost stays within its capacity. Of every group that was refused: which charge has to wait longest, what was its
-- level, and how many seconds. A negative cost gives back, down to nothing.
CREATE OR REPLACE FUNCTION holdfast.charge(scopes text[], periods text[], pers float8[], groups int[], keys int[], costs float8[], capacities float8[])
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
    UPDATE holdfast.usage u SET begins = holdfast.period_begins(u.period, at), used = greatest(round(x.level), 0)
      FROM unnest(scopes, periods, levels, touched) x(scope, period, level, touched)
     WHERE x.touched AND u.scope = x.scope AND u.period = x.period;
    UPDATE holdfast.meter m SET tat = at + make_interval(secs => x.level)
      FROM unnest(scopes, periods, levels, touched) x(scope, period, level, touched)
     WHERE x.touched AND x.period = 'rate' AND m.scope = x.scope;
END $$;
