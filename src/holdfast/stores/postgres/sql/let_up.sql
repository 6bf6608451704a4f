-- let_up: return messages to the line that wait behind a parked one, because their topic may have ceased to be strict.
-- If the topic is still strict, the next relay that takes messages puts them back.
SELECT holdfast.let_up(array_agg(p.topic), array_agg(p.key))
  FROM (SELECT topic, key FROM holdfast.outbox WHERE line = 3 AND key IS NOT NULL LIMIT 1000) p
