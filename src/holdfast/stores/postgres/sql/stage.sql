-- stage: give new jobs of fair lines their passes, and return how many jobs that were. Never run it inside another transaction.
-- $1 lanes, $2 prios, $3 only jobs enqueued in the last $3 microseconds (null: all), $4 limit for each line,
-- $5 the smallest `ord` of a job without a place, $6 the stride of weight 1
SELECT holdfast.stage($1::int[], $2::int[], greatest($5::bigint, holdfast.place(holdfast.clock()) - $3::bigint), $4::int, $5::bigint, $6::bigint)
