-- put_webhook: new, or in place of the one of this id; when it was made stays.
-- $1 id, $2 url, $3 events, $4 owner, $5 secrets, $6 inbound, $7 description, $8 disabled_reason, $9 failing_since, $10 disabled_at
INSERT INTO holdfast.webhook (id, url, events, owner, secrets, inbound, description, disabled_reason, failing_since, disabled_at,
                              created_at)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::boolean, $7::text, $8::text, $9::timestamptz, $10::timestamptz,
        holdfast.clock())
    ON CONFLICT (id) DO UPDATE
   SET url = excluded.url, events = excluded.events, owner = excluded.owner, secrets = excluded.secrets,
       inbound = excluded.inbound, description = excluded.description, failing_since = excluded.failing_since,
       disabled_at = excluded.disabled_at, disabled_reason = excluded.disabled_reason
RETURNING *
