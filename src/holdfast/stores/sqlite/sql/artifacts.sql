-- artifacts: the artifacts of a job, which are stored outside of the database. ?1 job
SELECT j.uid AS job_id, a.* FROM holdfast_artifact a JOIN holdfast_job j ON j.id = a.job
 WHERE j.uid = ?1 ORDER BY a.epoch, a.reference
