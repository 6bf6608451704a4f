-- take_messages: take messages that are due and have no earlier message of their key before them. $1 topics, $2 whether each is strict,
-- $3 limit, $4 for how long, $5 their epoch, $6 whether this was sent before, $7 to $9 a mark of `outbox_mark`
SELECT * FROM holdfast.take_messages($1::text[], $2::boolean[], $3::int, $4::interval, $5::bigint, $6::boolean,
                                     $7::text::pg_snapshot, $8::bigint[], $9::timestamptz)
