-- swap_breaker: compare-and-set. The first version is made, every other replaces the one before it.
INSERT INTO holdfast_breaker (dependency, shard, version, holding, value)
SELECT :dependency, :shard, :version, :holding, :value
 WHERE :version = 1 OR EXISTS (SELECT 1 FROM holdfast_breaker WHERE dependency = :dependency AND shard = :shard)
    ON CONFLICT (dependency, shard) DO UPDATE SET version = excluded.version, holding = excluded.holding, value = excluded.value
 WHERE holdfast_breaker.version = excluded.version - 1
