-- Tracebacks that no attempt refers to any more, and that no worker has used for some time.
DELETE FROM holdfast_traceback
 WHERE key IN (SELECT t.key FROM holdfast_traceback t
                WHERE t.at <= :before AND NOT EXISTS (SELECT 1 FROM holdfast_attempt a WHERE a.traceback = t.key)
                LIMIT :limit)
