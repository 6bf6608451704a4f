-- hold: a pause replaces an earlier one. A Retry-After can only lengthen an earlier one (:longer).
INSERT INTO holdfast_hold (kind, name, cause, until, reason, by, at) VALUES (:kind, :name, :cause, :until, :reason, :by, :now)
    ON CONFLICT (kind, name, cause) DO UPDATE SET until = excluded.until, reason = excluded.reason, by = excluded.by, at = excluded.at
 WHERE NOT :longer OR (holdfast_hold.until IS NOT NULL AND (excluded.until IS NULL OR excluded.until > holdfast_hold.until))
