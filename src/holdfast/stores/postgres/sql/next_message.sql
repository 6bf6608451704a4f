-- next_message: the time until a message of these topics may be taken. $1 topics, $2 to $4 a mark of `outbox_mark`
SELECT holdfast.next_message($1::text[], $2::text::pg_snapshot, $3::bigint[], $4::timestamptz)
