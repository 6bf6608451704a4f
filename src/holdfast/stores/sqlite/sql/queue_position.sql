-- queue_position: where a job is, who is before it, who has its key, its newest move (:last_move), and what is in use of bounds.
-- :scopes is a JSON array. CROSS JOIN: from the job's own pointers to events, never along all events. Those ahead are three
-- ranges of the index: one comparison of rows would walk the whole line for the job that is first in it.
WITH own AS (SELECT * FROM holdfast_job WHERE uid = :uid),
     pointers (seq) AS (SELECT queued_event FROM own UNION SELECT epoch FROM own UNION SELECT settle_event FROM own
                        UNION SELECT epoch FROM holdfast_attempt WHERE job = (SELECT id FROM own)
                        UNION SELECT settle_event FROM holdfast_attempt WHERE job = (SELECT id FROM own)
                        UNION SELECT seq FROM holdfast_event WHERE job = :uid)
SELECT l.queue, l.task, l.dependency, l.shard, l.fair, j.phase,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast_job o WHERE o.phase = 0 AND o.lane = j.lane AND o.prio < j.prio
                              UNION ALL
                              SELECT 1 FROM holdfast_job o WHERE o.phase = 0 AND o.lane = j.lane AND o.prio = j.prio AND o.ord < j.ord
                              UNION ALL
                              SELECT 1 FROM holdfast_job o
                               WHERE o.phase = 0 AND o.lane = j.lane AND o.prio = j.prio AND o.ord = j.ord AND o.id < j.id
                              LIMIT :most)) AS ahead,
       CASE WHEN (SELECT count(*) FROM holdfast_job o WHERE o.phase = 2 AND o.key = j.key AND o.id <> j.id) >= coalesce(j.key_slots, 1)
            THEN (SELECT o.uid FROM holdfast_job o WHERE o.phase = 2 AND o.key = j.key AND o.id <> j.id LIMIT 1) END AS holder, j.key_slots,
       (SELECT json_array(e.kind, e.at, json((SELECT m.value FROM json_each(e.moves) m WHERE m.value ->> 0 = :uid)))
          FROM pointers p CROSS JOIN holdfast_event e ON e.seq = p.seq
         WHERE e.kind <= :last_move ORDER BY e.seq DESC LIMIT 1) AS last,
       (SELECT json_group_array(json_array(s.value,
                   (SELECT count(*) FROM holdfast_slot t JOIN holdfast_job o ON o.id = t.job AND o.epoch = t.epoch AND o.phase = 2
                     WHERE t.scope = s.value),
                   max(0, coalesce((SELECT tat FROM holdfast_meter m WHERE m.scope = s.value) - :now, 0))))
          FROM json_each(:scopes) s) AS use
  FROM own j JOIN holdfast_lane l ON l.id = j.lane
