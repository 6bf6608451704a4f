-- let_up: return messages to the line that waited behind a key, if nothing is before them any more. At most a few batches at once: the
-- relay that delivers them lets in the next ones.
UPDATE holdfast_outbox SET line = 0
 WHERE number IN (SELECT b.number FROM holdfast_outbox b
                   WHERE b.topic = :topic AND b.key = :key AND b.key IS NOT NULL AND b.line = 1
                     AND NOT EXISTS (SELECT 1 FROM holdfast_outbox a
                                      WHERE a.topic = :topic AND a.key = :key AND a.key IS NOT NULL AND a.line = 2
                                        AND a.number < b.number)
                   ORDER BY b.number LIMIT 100)
