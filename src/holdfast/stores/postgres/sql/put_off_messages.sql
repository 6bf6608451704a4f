-- put_off_messages: let messages wait for longer, or park them, under the epochs they were taken with. $1 numbers, $2 epochs,
-- $3 waits (null: parked), $4 errors, $5 whether each was tried, $6 whether the target was not reached
SELECT holdfast.put_off_messages($1::bigint[], $2::bigint[], $3::interval[], $4::text[], $5::boolean[], $6::boolean[])
