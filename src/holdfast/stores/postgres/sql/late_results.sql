-- late_results: the results of a job that arrived after its end. $1 job, $2 after this epoch, $3 limit
SELECT * FROM holdfast.late_result WHERE job_id = $1 AND epoch > $2 ORDER BY epoch LIMIT $3
