-- Which of these lanes are held, by their places in ?1, a JSON array of [queue, task, dependency, shard, label]. This takes a few index
-- steps for each lane, however much is held. ?2 now; ?3 a trial passes breakers.
SELECT l.key
  FROM json_each(?1) l
 WHERE EXISTS (SELECT 1 FROM holdfast_hold h WHERE h.kind = 'queue' AND h.name = l.value ->> 0 AND (h.until IS NULL OR h.until > ?2))
    OR EXISTS (SELECT 1 FROM holdfast_hold h WHERE h.kind = 'task' AND h.name = l.value ->> 1 AND (h.until IS NULL OR h.until > ?2))
    OR EXISTS (SELECT 1 FROM holdfast_hold h WHERE h.kind = 'lane' AND h.name = l.value ->> 4 AND (h.until IS NULL OR h.until > ?2))
    OR (l.value ->> 2 <> ''
        AND (EXISTS (SELECT 1 FROM holdfast_hold h WHERE h.kind = 'dependency'
                        AND h.name IN (l.value ->> 2, (l.value ->> 2) || '#' || (l.value ->> 3)) AND (h.until IS NULL OR h.until > ?2))
             OR (NOT ?3 AND EXISTS (SELECT 1 FROM holdfast_breaker b
                                         WHERE b.dependency = l.value ->> 2 AND b.shard = l.value ->> 3 AND b.holding))))
