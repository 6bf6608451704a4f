-- artifacts: the artifacts of a job, which are stored outside of the database. $1 job
SELECT * FROM holdfast.artifact WHERE job_id = $1 ORDER BY epoch, reference
