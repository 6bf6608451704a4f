-- put_off_messages: let a message wait for longer, or park it, under the epoch it was taken with.
UPDATE holdfast_outbox
   SET tries = tries + :tried, unreached = unreached + :away, error = coalesce(nullif(:error, ''), error), failed_epoch = :epoch,
       line = CASE WHEN :until IS NULL THEN 3 ELSE 2 END, not_before = :until,
       settled_at = CASE WHEN :until IS NULL THEN :now END
 WHERE number = :number AND epoch = :epoch AND failed_epoch <> :epoch AND line < 3
