-- begin_operation: kept once, however often it is sent.
-- $1 id, $2 action, $3 conditions, $4 by, $5 options, $6 rate, $7 owner, $8 progress, $9 matched
INSERT INTO holdfast.operation (id, action, conditions, by, options, rate, owner, progress, matched, done, refused, epoch,
                                created_at, updated_at)
SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::float8, $7::text, $8::text, $9::bigint, 0, 0, 0, now, now
  FROM holdfast.clock() now
    ON CONFLICT (id) DO NOTHING
