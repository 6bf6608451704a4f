-- Delete the records of owners whose latest pass is a stride or more behind the head of the line. Their next job is placed at the head
-- with or without it.
DELETE FROM holdfast_flow
 WHERE lane = :lane AND prio = :prio
   AND owner IN (SELECT f.owner FROM holdfast_flow f LEFT JOIN holdfast_owner_weight w ON w.owner = f.owner
                  WHERE f.lane = :lane AND f.prio = :prio AND f.owner <> ''
                    AND f.last + :stride / coalesce(w.weight, 1) <= :head
                  LIMIT :limit)
