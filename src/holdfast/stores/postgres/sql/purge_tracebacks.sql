-- Tracebacks that no attempt refers to any more, and that no worker has used for some time. $1 how long, $2 limit
DELETE FROM holdfast.traceback
 WHERE key IN (SELECT t.key FROM holdfast.traceback t
                WHERE t.at <= holdfast.clock() - $1::interval
                  AND NOT EXISTS (SELECT FROM holdfast.attempt a WHERE a.traceback = t.key)
                LIMIT $2::int FOR UPDATE SKIP LOCKED)
RETURNING key
