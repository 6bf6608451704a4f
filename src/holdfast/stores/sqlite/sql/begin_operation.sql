-- begin_operation: kept once, however often it is sent.
INSERT INTO holdfast_operation (id, action, conditions, by, options, rate, owner, progress, matched, done, refused, epoch,
                                created_at, updated_at)
VALUES (:id, :action, :conditions, :by, :options, :rate, :owner, :progress, :matched, 0, 0, 0, :now, :now)
    ON CONFLICT (id) DO NOTHING
