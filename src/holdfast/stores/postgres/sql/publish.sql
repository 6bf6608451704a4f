-- publish: keep messages until they are delivered. $1 ids, $2 topics, $3 keys, $4 bodies, $5 headers, $6 whether to tell relays
-- in this very transaction
SELECT holdfast.publish($1::text[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::boolean)
