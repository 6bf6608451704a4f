-- forget_messages: delete messages that were published long ago. $1 how long ago, $2 limit, $3 published since, or null
DELETE FROM holdfast.outbox_sent
 WHERE number IN (SELECT number FROM holdfast.outbox_sent WHERE published_at <= (SELECT holdfast.clock()) - $1::interval
                     AND published_at >= coalesce($3::timestamptz, '-infinity')
                   ORDER BY published_at LIMIT $2::int)
RETURNING published_at
