-- swap_breaker: compare-and-set. The first version is made, every other replaces the one before it.
-- $1 dependency, $2 shard, $3 version, $4 holding, $5 value
INSERT INTO holdfast.breaker AS b (dependency, shard, version, holding, value)
SELECT $1::text, $2::text, $3::bigint, $4::boolean, $5::jsonb
 WHERE $3::bigint = 1 OR EXISTS (SELECT FROM holdfast.breaker WHERE dependency = $1::text AND shard = $2::text)
    ON CONFLICT (dependency, shard) DO UPDATE SET version = excluded.version, holding = excluded.holding, value = excluded.value
 WHERE b.version = excluded.version - 1
RETURNING b.version
