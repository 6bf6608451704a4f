-- Record an owner's latest pass in a line, also as the latest of all owners ('').
INSERT INTO holdfast_flow (lane, prio, owner, last) VALUES (:lane, :prio, :owner, :last), (:lane, :prio, '', :last)
    ON CONFLICT (lane, prio, owner) DO UPDATE SET last = max(last, excluded.last)
