-- extend: a session that lives goes on for another ttl. One that ended cannot come back: its jobs may be another's. $1 session
UPDATE holdfast.session SET expires_at = holdfast.clock() + ttl WHERE id = $1::bigint AND expires_at > holdfast.clock() RETURNING id
