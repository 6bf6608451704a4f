-- job: a job as people see it. ?1 id
SELECT * FROM holdfast_jobs WHERE id = ?1
