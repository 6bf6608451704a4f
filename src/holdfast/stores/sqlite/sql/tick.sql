-- tick: compare-and-set of a schedule's place; without a place before, it is new.
INSERT INTO holdfast_schedule_tick (name, last, due, ticked)
SELECT :name, :last, :due, :ticked
 WHERE :before IS NULL OR EXISTS (SELECT 1 FROM holdfast_schedule_tick WHERE name = :name)
    ON CONFLICT (name) DO UPDATE SET last = excluded.last, due = excluded.due, ticked = coalesce(excluded.ticked, ticked)
 WHERE holdfast_schedule_tick.last IS :before
