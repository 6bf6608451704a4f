-- extend: let a live session continue for another ttl. An expired one stays expired, because its jobs may be another's. $1 session
UPDATE holdfast.session SET expires_at = holdfast.clock() + ttl WHERE id = $1::bigint AND expires_at > holdfast.clock() RETURNING id
