-- lags: what waits and what is parked in each topic, and since when the oldest has waited.
SELECT topic, count(*) FILTER (WHERE line < 3), count(*) FILTER (WHERE line = 3), min(since) FILTER (WHERE line < 3)
  FROM holdfast_outbox WHERE line < 4 GROUP BY topic ORDER BY topic
