-- feed: the rows of the event log. SQLite has one writer, so their order is the order of the commits. ?1 seq to begin with, ?2 limit
SELECT seq, at, kind, moves FROM holdfast_event WHERE seq >= ?1 ORDER BY seq LIMIT ?2
