-- extend: let a live session continue for another ttl. An expired one stays expired, because its jobs may be another's.
UPDATE holdfast_session SET expires_mono = :mono + ttl WHERE id = :session AND boot = :boot AND expires_mono > :mono
