-- take_request: its row is ours unless one of this name is kept whose time is not up. Of two at once the later waits.
-- $1 digest, $2 fingerprint, $3 answers, $4 how long to keep it
INSERT INTO holdfast.request AS r (digest, fingerprint, answers, until)
VALUES ($1::bytea, $2::bytea, $3::text, holdfast.clock() + $4::interval)
    ON CONFLICT (digest) DO UPDATE
   SET fingerprint = excluded.fingerprint, answers = excluded.answers, until = excluded.until
 WHERE r.until <= holdfast.clock()
RETURNING digest
