-- tick: compare-and-set of a schedule's place. $1 name, $2 the place before (null: it is new), $3 last, $4 due,
-- $5 the newest tick that was enqueued (null: as before)
INSERT INTO holdfast.schedule_tick AS t (name, last, due, ticked)
SELECT $1::text, $3::timestamptz, $4::timestamptz, $5::timestamptz
 WHERE $2::timestamptz IS NULL OR EXISTS (SELECT FROM holdfast.schedule_tick WHERE name = $1::text)
    ON CONFLICT (name) DO UPDATE SET last = excluded.last, due = excluded.due, ticked = coalesce(excluded.ticked, t.ticked)
 WHERE t.last = $2::timestamptz
RETURNING t.name
