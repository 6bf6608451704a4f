-- hold: a pause replaces an earlier one, unless it is the same call sent again. A Retry-After can only lengthen an earlier one.
-- $1 kind, $2 name, $3 cause, $4 span (null: until it is resumed), $5 reason, $6 by, $7 token of a pause
INSERT INTO holdfast.hold AS h (kind, name, cause, until, reason, by, at, token)
SELECT $1::text, $2::text, $3::text, coalesce(n.at + $4::interval, 'infinity'), $5::text, $6::text, n.at, $7::uuid
  FROM (SELECT holdfast.clock() AS at OFFSET 0) n
    ON CONFLICT (kind, name, cause) DO UPDATE
   SET until = excluded.until, reason = excluded.reason, by = excluded.by, at = excluded.at, token = excluded.token
 WHERE CASE WHEN excluded.token IS NULL THEN h.until < excluded.until ELSE h.token IS DISTINCT FROM excluded.token END
RETURNING nullif(h.until, 'infinity')
