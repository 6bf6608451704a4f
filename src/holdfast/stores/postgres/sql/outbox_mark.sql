-- outbox_mark: the position from which the next statements search. $1 topics, $2 the highest number that was taken, $3 to $5 the mark
-- before, or nulls
SELECT seen::text, marks, due
  FROM holdfast.outbox_mark($1::text[], $2::bigint, $3::text::pg_snapshot, $4::bigint[], $5::timestamptz)
