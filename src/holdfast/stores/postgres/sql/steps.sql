-- steps: the results of a job's durable steps, in their order. $1 job
SELECT name, result FROM holdfast.step WHERE job_id = $1 ORDER BY at
