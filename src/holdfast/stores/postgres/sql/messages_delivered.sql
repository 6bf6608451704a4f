-- messages_delivered: waiting -> published, under the epochs they were taken with. $1 numbers, $2 epochs, $3 and $4 a mark of
-- `outbox_mark`
SELECT holdfast.messages_delivered($1::bigint[], $2::bigint[], $3::text::pg_snapshot, $4::bigint[])
