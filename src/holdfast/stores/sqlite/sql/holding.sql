-- What is held now: scopes by name, and (without a kind) the dependencies whose breakers hold their lanes.
SELECT kind, name, NULL AS shard FROM holdfast_hold WHERE until IS NULL OR until > ?
UNION ALL
SELECT NULL, dependency, shard FROM holdfast_breaker WHERE holding
