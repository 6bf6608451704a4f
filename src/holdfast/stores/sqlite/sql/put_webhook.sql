-- put_webhook: new, or in place of the one of this id; when it was made stays.
INSERT INTO holdfast_webhook (id, url, events, owner, secrets, inbound, description, created_at, failing_since, disabled_at,
                              disabled_reason)
VALUES (:id, :url, :events, :owner, :secrets, :inbound, :description, :now, :failing_since, :disabled_at, :disabled_reason)
    ON CONFLICT (id) DO UPDATE
   SET url = excluded.url, events = excluded.events, owner = excluded.owner, secrets = excluded.secrets,
       inbound = excluded.inbound, description = excluded.description, failing_since = excluded.failing_since,
       disabled_at = excluded.disabled_at, disabled_reason = excluded.disabled_reason
