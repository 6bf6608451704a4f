-- Delete the records of owners whose latest pass is so far behind that their next one does not depend on it.
-- $1 the longest stride there is, $2 limit
DELETE FROM holdfast.flow WHERE ctid = ANY (ARRAY(
    SELECT f.ctid FROM holdfast.line n JOIN holdfast.flow f ON f.lane = n.lane AND f.prio = n.prio
     WHERE f.last < n.head - $1::bigint LIMIT $2::int FOR UPDATE OF f SKIP LOCKED))
