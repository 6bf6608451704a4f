-- next_message: how long until one of these topics may be taken. $1 topics
SELECT min(CASE WHEN EXISTS (SELECT FROM holdfast.outbox o WHERE o.topic = t.topic AND o.line = 0) THEN interval '0'
                ELSE (SELECT greatest(o.not_before - holdfast.clock(), interval '0') FROM holdfast.outbox o
                       WHERE o.topic = t.topic AND o.not_before IS NOT NULL ORDER BY o.not_before LIMIT 1) END)
  FROM unnest($1::text[]) AS t(topic)
