-- late_results: the results of a job that arrived after its end. ?1 job, ?2 after this epoch, ?3 limit
SELECT r.* FROM holdfast_late_result r JOIN holdfast_job j ON j.id = r.job
 WHERE j.uid = ?1 AND r.epoch > ?2 ORDER BY r.epoch LIMIT ?3
