-- forget_messages: delete messages that were published long ago.
DELETE FROM holdfast_outbox
 WHERE number IN (SELECT number FROM holdfast_outbox WHERE line = 4 AND settled_at <= :before ORDER BY settled_at LIMIT :limit)
