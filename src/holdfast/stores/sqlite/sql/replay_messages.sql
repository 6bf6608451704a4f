-- replay_messages: published or parked -> waiting. The epoch grows, so that a relay that took it before is refused.
UPDATE holdfast_outbox
   SET line = 0, tries = 0, unreached = 0, error = NULL, settled_at = NULL, since = :now, epoch = epoch + 1
 WHERE number IN (SELECT number FROM holdfast_outbox
                   WHERE topic = :topic AND line IN (3, 4) AND number BETWEEN :first AND :last
                   ORDER BY number LIMIT :limit)
RETURNING number
