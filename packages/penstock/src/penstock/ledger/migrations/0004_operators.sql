-- What people decide about records, and when deliveries ended.

ALTER TABLE nack ADD COLUMN tries INTEGER NOT NULL DEFAULT 0;   -- replays that were in vain
ALTER TABLE nack ADD COLUMN replay INTEGER;                     -- the last replay that it is, or was, part of
CREATE INDEX nack_by_id ON nack (id);

ALTER TABLE delivery ADD COLUMN at INTEGER;                     -- milliseconds since 1970, from done on

-- Dead letters of a lane that go through their pipeline again. The lane that does it has a name of its own.
CREATE TABLE replay (
    number INTEGER PRIMARY KEY,
    lane   INTEGER NOT NULL REFERENCES lane,    -- whose dead letters they are
    start  TEXT NOT NULL,                       -- 'start': as the source gave them; 'failed': as they were, from the processor that failed
    state  TEXT NOT NULL CHECK (state IN ('asked', 'done')),
    at     INTEGER NOT NULL
);

-- Records that are settled without being sent.
CREATE TABLE skip (
    lane   INTEGER NOT NULL REFERENCES lane,
    strand TEXT NOT NULL,                       -- '': the number is a seq
    number INTEGER NOT NULL,                    -- the record's place in the strand: of a file, an offset of a log or a partition
    seq    INTEGER,                             -- once it is known: from done on
    reason TEXT NOT NULL,
    state  TEXT NOT NULL CHECK (state IN ('asked', 'done')),
    at     INTEGER NOT NULL,
    PRIMARY KEY (lane, strand, number)
) WITHOUT ROWID;
