-- newest_event: the newest row of the event log, and how many moves it records.
SELECT seq, json_array_length(moves) AS moves FROM holdfast_event ORDER BY seq DESC LIMIT 1
