-- forget_messages: remove what was published long ago. $1 how long ago, $2 how many, $3 from when on, or null
DELETE FROM holdfast.outbox_sent
 WHERE number IN (SELECT number FROM holdfast.outbox_sent WHERE published_at <= (SELECT holdfast.clock()) - $1::interval
                     AND published_at >= coalesce($3::timestamptz, '-infinity')
                   ORDER BY published_at LIMIT $2::int)
RETURNING published_at
