-- publish: store a message until it is delivered.
INSERT INTO holdfast_outbox (id, topic, key, body, headers, created_at, since) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)
    ON CONFLICT (id) DO NOTHING
