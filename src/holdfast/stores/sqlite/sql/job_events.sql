-- job_events: the events of a job, found by the pointers of its rows, and by the index for the moves of a single job. ?1 job
WITH own (id, a, b, c) AS (SELECT id, queued_event, epoch, settle_event FROM holdfast_job WHERE uid = ?1),
     seqs (seq) AS (SELECT a FROM own UNION SELECT b FROM own UNION SELECT c FROM own
                    UNION SELECT epoch FROM holdfast_attempt WHERE job = (SELECT id FROM own)
                    UNION SELECT settle_event FROM holdfast_attempt WHERE job = (SELECT id FROM own))
SELECT seq, at, kind, moves FROM holdfast_event WHERE seq IN (SELECT seq FROM seqs) OR job = ?1 ORDER BY seq
