-- take_messages: the messages in line after a number, and whether an older one of the same key is before each.
SELECT o.number,
       o.key IS NOT NULL AND (
           EXISTS (SELECT 1 FROM holdfast_outbox b
                    WHERE b.topic = o.topic AND b.key = o.key AND b.key IS NOT NULL AND b.line = 2 AND b.number < o.number)
        OR EXISTS (SELECT 1 FROM holdfast_outbox b
                    WHERE b.topic = o.topic AND b.key = o.key AND b.key IS NOT NULL AND b.line = 1 AND b.number < o.number)
        OR (:strict AND EXISTS (
                SELECT 1 FROM holdfast_outbox b
                 WHERE b.topic = o.topic AND b.key = o.key AND b.key IS NOT NULL AND b.line = 3 AND b.number < o.number)))
  FROM holdfast_outbox o WHERE o.topic = :topic AND o.line = 0 AND o.number > :last ORDER BY o.number LIMIT :most
