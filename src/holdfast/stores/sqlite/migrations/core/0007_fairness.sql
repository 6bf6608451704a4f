-- Fair lanes: owners take turns (ADR 0007).

-- The latest pass of each owner in a fair lane and priority. The row with owner '' has the latest pass of all.
CREATE TABLE holdfast_flow (
    lane  INTEGER NOT NULL,
    prio  INTEGER NOT NULL,
    owner TEXT NOT NULL,
    last  INTEGER NOT NULL,
    PRIMARY KEY (lane, prio, owner)
) STRICT, WITHOUT ROWID;

CREATE TABLE holdfast_owner_weight (
    owner  TEXT PRIMARY KEY,
    weight REAL NOT NULL
) STRICT, WITHOUT ROWID;
