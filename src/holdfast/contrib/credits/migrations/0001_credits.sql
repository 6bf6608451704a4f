-- Credits: accounts, what jobs have reserved, and a ledger of every change.

-- The price of a job of each task, as the newest app that sells the task declared it.
CREATE TABLE holdfast.credit_price (
    task  text PRIMARY KEY,
    price bigint NOT NULL CHECK (price >= 0)
);

CREATE TABLE holdfast.credit_account (
    id         text PRIMARY KEY,
    paid_by    text CHECK (paid_by <> id),             -- null: it pays for itself
    available  bigint NOT NULL DEFAULT 0 CHECK (available >= 0),
    created_at timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX credit_account_paid_by ON holdfast.credit_account (paid_by) WHERE paid_by IS NOT NULL;

-- Credits that were granted together. Credits that expire sooner are spent first.
CREATE TABLE holdfast.credit_grant (
    id         text PRIMARY KEY,
    account    text NOT NULL,
    source     text NOT NULL,
    amount     bigint NOT NULL CHECK (amount > 0),
    remaining  bigint NOT NULL CHECK (remaining BETWEEN 0 AND amount),
    expires_at timestamptz,
    created_at timestamptz NOT NULL,
    by         text NOT NULL,
    note       text NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX credit_grant_left ON holdfast.credit_grant (account) WHERE remaining > 0;
CREATE INDEX credit_grant_expires ON holdfast.credit_grant (expires_at) WHERE remaining > 0 AND expires_at IS NOT NULL;

-- What one generation of a job has reserved.
CREATE TABLE holdfast.credit_hold (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job        text NOT NULL,
    generation int NOT NULL,
    account    text NOT NULL,
    owner      text NOT NULL,
    price      bigint NOT NULL CHECK (price > 0),
    draws      text NOT NULL,                          -- JSON: [[grant, amount], …]
    at         timestamptz NOT NULL,
    standing   text NOT NULL DEFAULT 'held' CHECK (standing IN ('held', 'captured', 'returned')),
    settled_at timestamptz CHECK ((settled_at IS NULL) = (standing = 'held')),
    UNIQUE (job, generation)
);
CREATE INDEX credit_hold_held ON holdfast.credit_hold (number) WHERE standing = 'held';
CREATE INDEX credit_hold_account ON holdfast.credit_hold (account) WHERE standing = 'held';

-- The ledger. The entries of one tx add up to zero. The tx of a job's move is named by job, generation and reason, so the
-- unique constraint refuses a second posting.
CREATE TABLE holdfast.credit_entry (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tx         text NOT NULL,
    account    text NOT NULL,
    bucket     text NOT NULL,
    amount     bigint NOT NULL CHECK (amount <> 0),
    at         timestamptz NOT NULL,
    reason     text NOT NULL,
    job        text,
    generation int,
    by         text NOT NULL,
    note       text NOT NULL,
    UNIQUE (tx, account, bucket)
);
CREATE INDEX credit_entry_account ON holdfast.credit_entry (account, number);
CREATE INDEX credit_entry_job ON holdfast.credit_entry (job, number) WHERE job IS NOT NULL;
