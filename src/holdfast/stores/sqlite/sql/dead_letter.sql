INSERT INTO holdfast_dead_letter (job, reason, message, detail, fingerprint, attempts, at)
VALUES (:id, :code, :message, :detail, :fingerprint, :attempts, :now)
    ON CONFLICT (job) DO UPDATE SET reason = excluded.reason, message = excluded.message, detail = excluded.detail,
       fingerprint = excluded.fingerprint, attempts = excluded.attempts, at = excluded.at
