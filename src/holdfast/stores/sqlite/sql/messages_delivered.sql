-- messages_delivered: waiting -> published, under the epoch it was taken with.
UPDATE holdfast_outbox SET line = 4, not_before = NULL, settled_at = :now
 WHERE number = :number AND epoch = :epoch AND line < 4
