-- steps: the results of a job's durable steps, in their order. ?1 job
SELECT s.name, s.result FROM holdfast_step s JOIN holdfast_job j ON j.id = s.job WHERE j.uid = ?1 ORDER BY s.at
