-- extend: a session that lives goes on for another ttl. One that ended cannot come back: its jobs may be another's.
UPDATE holdfast_session SET expires_mono = :mono + ttl WHERE id = :session AND boot = :boot AND expires_mono > :mono
