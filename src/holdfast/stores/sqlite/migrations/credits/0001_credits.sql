-- Credits: accounts, what jobs have reserved, and a ledger of every change.

-- The price of a job of each task, as the newest app that sells the task declared it.
CREATE TABLE holdfast_credit_price (
    task  TEXT PRIMARY KEY,
    price INTEGER NOT NULL CHECK (price >= 0)
) STRICT;

CREATE TABLE holdfast_credit_account (
    id         TEXT PRIMARY KEY,
    paid_by    TEXT CHECK (paid_by <> id),             -- null: it pays for itself
    available  INTEGER NOT NULL DEFAULT 0 CHECK (available >= 0),
    quota      TEXT NOT NULL DEFAULT '{}',             -- JSON
    uses       TEXT NOT NULL DEFAULT '{}',             -- JSON: {"day": [begins, retries, cost], "month": …}
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX holdfast_credit_account_paid_by ON holdfast_credit_account (paid_by) WHERE paid_by IS NOT NULL;

-- Credits that were granted together. Credits that expire sooner are spent first.
CREATE TABLE holdfast_credit_grant (
    id         TEXT PRIMARY KEY,
    account    TEXT NOT NULL,
    source     TEXT NOT NULL,
    amount     INTEGER NOT NULL CHECK (amount > 0),
    remaining  INTEGER NOT NULL CHECK (remaining BETWEEN 0 AND amount),
    expires_at INTEGER,
    created_at INTEGER NOT NULL,
    by         TEXT NOT NULL,
    note       TEXT NOT NULL
) STRICT;
CREATE INDEX holdfast_credit_grant_left ON holdfast_credit_grant (account) WHERE remaining > 0;
CREATE INDEX holdfast_credit_grant_expires ON holdfast_credit_grant (expires_at) WHERE remaining > 0 AND expires_at IS NOT NULL;

-- What one generation of a job has reserved.
CREATE TABLE holdfast_credit_hold (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    job        TEXT NOT NULL,
    generation INTEGER NOT NULL,
    account    TEXT NOT NULL,
    owner      TEXT NOT NULL,
    price      INTEGER NOT NULL CHECK (price > 0),
    draws      TEXT NOT NULL,                          -- JSON: [[grant, amount], …]
    is_retry   INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    standing   TEXT NOT NULL DEFAULT 'held' CHECK (standing IN ('held', 'captured', 'returned')),
    settled_at INTEGER CHECK ((settled_at IS NULL) = (standing = 'held')),
    UNIQUE (job, generation)
) STRICT;
CREATE INDEX holdfast_credit_hold_held ON holdfast_credit_hold (number) WHERE standing = 'held';
CREATE INDEX holdfast_credit_hold_account ON holdfast_credit_hold (account) WHERE standing = 'held';

-- The ledger. The entries of one tx add up to zero. The tx of a job's move is named by job, generation and reason, so the
-- unique constraint refuses a second posting.
CREATE TABLE holdfast_credit_entry (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    tx         TEXT NOT NULL,
    account    TEXT NOT NULL,
    bucket     TEXT NOT NULL,
    amount     INTEGER NOT NULL CHECK (amount <> 0),
    at         INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    job        TEXT,
    generation INTEGER,
    by         TEXT NOT NULL,
    note       TEXT NOT NULL,
    UNIQUE (tx, account, bucket)
) STRICT;
CREATE INDEX holdfast_credit_entry_account ON holdfast_credit_entry (account, number);
CREATE INDEX holdfast_credit_entry_job ON holdfast_credit_entry (job, number) WHERE job IS NOT NULL;
