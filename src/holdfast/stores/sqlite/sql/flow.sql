-- What decides the place of an owner's next job: the pass at the head of the line, the latest pass given there, the owner's own latest
-- pass, and the owner's weight.
SELECT (SELECT ord FROM holdfast_job WHERE phase = 0 AND lane = :lane AND prio = :prio AND ord < :unplaced ORDER BY ord LIMIT 1),
       (SELECT last FROM holdfast_flow WHERE lane = :lane AND prio = :prio AND owner = ''),
       (SELECT last FROM holdfast_flow WHERE lane = :lane AND prio = :prio AND owner = :owner),
       (SELECT weight FROM holdfast_owner_weight WHERE owner = :owner)
