-- Outcomes other than delivered and filtered: dead letters, splits, gates, what was given up on purpose.

CREATE TABLE snapshot_2 (
    lane       INTEGER NOT NULL REFERENCES lane,
    batch      INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('open', 'prepared', 'done', 'dropped', 'split', 'taken')),
    ranges     TEXT NOT NULL,                   -- JSON, the real positions of every input
    batch_time INTEGER NOT NULL,                -- milliseconds since 1970, the time records of this batch carry
    records    INTEGER,                         -- how many were read; known from prepare on
    parent     INTEGER,                         -- the batch this one was split from
    reason     TEXT,                            -- why: gate, killed, unreadable, …
    acked_to   INTEGER,                         -- of a prepared batch: records before this seq are acked already
    PRIMARY KEY (lane, batch)
) WITHOUT ROWID;
INSERT INTO snapshot_2 SELECT lane, batch, epoch, state, ranges, batch_time, records, NULL, NULL, NULL FROM snapshot;
DROP TABLE snapshot;
ALTER TABLE snapshot_2 RENAME TO snapshot;

ALTER TABLE attempt ADD COLUMN targets TEXT;    -- JSON: who may have staged something, to clean up after a changed file

ALTER TABLE delivery ADD COLUMN kind TEXT NOT NULL DEFAULT 'destination';   -- destination | dead-letters | dlq
ALTER TABLE delivery ADD COLUMN produced INTEGER NOT NULL DEFAULT 0;        -- further parts that splitting made
ALTER TABLE delivery ADD COLUMN nacked INTEGER NOT NULL DEFAULT 0;          -- dead-lettered before the commit
ALTER TABLE delivery ADD COLUMN gate TEXT;      -- JSON: the ring before this batch and its nacks, for nacks that come late
ALTER TABLE delivery ADD COLUMN held TEXT;      -- JSON: the record at which this delivery stopped

ALTER TABLE total ADD COLUMN dead_lettered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE total ADD COLUMN discarded INTEGER NOT NULL DEFAULT 0;
ALTER TABLE total ADD COLUMN produced INTEGER NOT NULL DEFAULT 0;

-- One row per dead letter; the record itself is in the dead letters' files, or here while it is held.
CREATE TABLE nack (
    lane        INTEGER NOT NULL REFERENCES lane,
    seq         INTEGER NOT NULL,
    part        INTEGER NOT NULL,
    destination TEXT NOT NULL,                  -- '' = every destination
    batch       INTEGER NOT NULL,
    id          TEXT NOT NULL,                  -- the record's id
    position    BLOB NOT NULL,
    node        TEXT NOT NULL,
    code        TEXT NOT NULL,
    error       TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('open', 'held', 'replayed', 'dropped')),
    at          INTEGER NOT NULL,               -- milliseconds since 1970
    record      TEXT,                           -- JSON, while held
    PRIMARY KEY (lane, seq, part, destination)
) WITHOUT ROWID;

CREATE TABLE gate (
    lane        INTEGER NOT NULL REFERENCES lane,
    destination TEXT NOT NULL,
    ring        TEXT NOT NULL,                  -- JSON of engine.gate.Ring
    PRIMARY KEY (lane, destination)
) WITHOUT ROWID;

-- What a person decided.
CREATE TABLE audit (
    at       INTEGER NOT NULL,
    pipeline TEXT NOT NULL,
    what     TEXT NOT NULL,
    detail   TEXT NOT NULL
);
