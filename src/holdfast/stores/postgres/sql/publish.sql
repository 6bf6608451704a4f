-- publish: store messages until they are delivered. $1 ids, $2 topics, $3 keys, $4 bodies, $5 headers, $6 whether to notify relays
-- in this transaction
SELECT holdfast.publish($1::text[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::boolean)
