-- queue_position: where a job is, which jobs are ahead of it, which job holds its key, its newest move, and how much of its limits is used.
-- $1 id  $2 how many to count  $3 the number of the last kind that moves a job  $4 scopes
WITH pointers AS (
    SELECT queued_seq AS seq FROM holdfast.job WHERE id = $1::uuid
    UNION SELECT claim_seq FROM holdfast.lease WHERE job_id = $1::uuid
    UNION SELECT unnest(ARRAY[claim_seq, settle_seq]) FROM holdfast.done WHERE job_id = $1::uuid
    UNION SELECT unnest(ARRAY[claim_seq, settle_seq]) FROM holdfast.attempt WHERE job_id = $1::uuid
    UNION SELECT seq FROM holdfast.event WHERE job_id = $1::uuid
)
SELECT n.queue, n.task, n.dependency, n.shard, n.fair, holdfast.clock() AS now,
       CASE WHEN r.id IS NOT NULL THEN 'line' WHEN d.run_at = 'infinity' OR d.at_once THEN 'key' WHEN d.id IS NOT NULL THEN 'later' END AS place,
       (SELECT count(*) FROM (SELECT FROM holdfast.ready o WHERE o.lane = r.lane AND (o.prio, o.ord, o.id) < (r.prio, r.ord, r.id)
                               LIMIT $2::int) x) AS ahead,
       CASE WHEN d.id IS NOT NULL THEN k.job_id::text END AS holder, j.key_slots,
       e.kind, e.at, e.attempts[e.place] AS attempt, e.metas[e.place] AS meta,
       (SELECT jsonb_agg(jsonb_build_array(s.scope,
                   (SELECT count(*) FROM holdfast.slot t JOIN holdfast.lease x ON x.job_id = t.job_id AND x.epoch = t.epoch
                     WHERE t.scope = s.scope),
                   coalesce((SELECT greatest(extract(epoch FROM m.tat - holdfast.clock()), 0) FROM holdfast.meter m WHERE m.scope = s.scope), 0)))
          FROM unnest($4::text[]) s(scope)) AS use
  FROM holdfast.job j
  LEFT JOIN holdfast.life g ON g.job_id = j.id
  JOIN holdfast.lane n ON n.id = coalesce(g.lane, j.lane)
  LEFT JOIN holdfast.ready r ON r.id = j.id
  LEFT JOIN holdfast.deferred d ON d.id = j.id
  LEFT JOIN LATERAL (SELECT x.job_id FROM holdfast.key_slot x WHERE x.key = j.key AND x.job_id <> j.id ORDER BY x.n LIMIT 1) k ON true
  LEFT JOIN LATERAL (SELECT v.kind, v.at, v.attempts, v.metas, array_position(v.job_ids, j.id) AS place
                       FROM pointers p JOIN holdfast.event v ON v.seq = p.seq
                      WHERE v.kind <= $3::int ORDER BY v.seq DESC LIMIT 1) e ON true
 WHERE j.id = $1::uuid
