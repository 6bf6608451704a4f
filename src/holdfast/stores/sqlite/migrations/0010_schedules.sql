-- The newest tick whose job was enqueued. `last` also moves on where nothing was: at the first sight of a schedule.
ALTER TABLE holdfast_schedule_tick ADD COLUMN ticked INTEGER;
