-- claim of one job by its id, whether it is due or not: makes it ready, for `claim`.
UPDATE holdfast_job SET phase = 0 WHERE uid = :uid AND generation = :generation AND {phase may claim} RETURNING id
