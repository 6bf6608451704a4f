-- stage: newcomers of fair lines get their passes; how many there were. Never inside another transaction.
-- $1 lanes, $2 prios, $3 only jobs enqueued in the last $3 microseconds (null: all), $4 how many of each line,
-- $5 where moments begin, $6 the stride of weight 1
SELECT holdfast.stage($1::int[], $2::int[], greatest($5::bigint, holdfast.place(holdfast.clock()) - $3::bigint), $4::int, $5::bigint, $6::bigint)
