-- messages_delivered: waiting -> published, under the epochs they were taken with. $1 numbers, $2 epochs
SELECT holdfast.messages_delivered($1::bigint[], $2::bigint[])
