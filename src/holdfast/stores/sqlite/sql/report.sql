-- report: replaces what this worker told before.
INSERT OR REPLACE INTO holdfast_report (dependency, shard, session, at, version, vote, capacity, in_flight, latency, calls, failures)
VALUES (:dependency, :shard, :session, :now, :version, :vote, :capacity, :in_flight, :latency, :calls, :failures)
