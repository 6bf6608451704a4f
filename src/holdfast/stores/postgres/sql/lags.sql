-- lags: what waits and what is parked in each topic, and how long the oldest has waited.
SELECT topic, count(*) FILTER (WHERE line <> 3) AS waiting, count(*) FILTER (WHERE line = 3) AS parked,
       greatest((SELECT holdfast.clock()) - min(since) FILTER (WHERE line <> 3), interval '0') AS oldest
  FROM holdfast.outbox GROUP BY topic ORDER BY topic COLLATE "C"
