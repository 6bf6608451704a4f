INSERT INTO holdfast_dead_letter (job, code, message, detail, fingerprint, attempts, at)
VALUES (:id, :code, :message, :detail, :fingerprint, :attempts, :now)
    ON CONFLICT (job) DO UPDATE SET code = excluded.code, message = excluded.message, detail = excluded.detail,
       fingerprint = excluded.fingerprint, attempts = excluded.attempts, at = excluded.at
