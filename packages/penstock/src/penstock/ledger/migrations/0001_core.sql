-- The account of every batch. Lanes are named by (pipeline, source); a batch by (lane, number).

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,      -- 'fence': raised by every start of an engine; 'epoch': where new lanes start
    value INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE lane (
    id          INTEGER PRIMARY KEY,
    pipeline    TEXT NOT NULL,
    source      TEXT NOT NULL,
    epoch       INTEGER NOT NULL,               -- part of every hash; raised by rewind
    next_batch  INTEGER NOT NULL DEFAULT 1,
    next_seq    INTEGER NOT NULL DEFAULT 0,
    acked_batch INTEGER NOT NULL DEFAULT 0,     -- the frontier: up to here everything is settled and the source may be told
    read        INTEGER NOT NULL DEFAULT 0,     -- records of all batches that are done
    acked       INTEGER NOT NULL DEFAULT 0,     -- records up to the frontier
    UNIQUE (pipeline, source)
);

-- The last range taken of every strand (a file, a partition, a log).
CREATE TABLE strand (
    lane   INTEGER NOT NULL REFERENCES lane,
    name   TEXT NOT NULL,
    range  TEXT NOT NULL,                       -- JSON
    batch  INTEGER NOT NULL,                    -- the snapshot that took it
    PRIMARY KEY (lane, name)
) WITHOUT ROWID;

CREATE TABLE snapshot (
    lane       INTEGER NOT NULL REFERENCES lane,
    batch      INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('open', 'prepared', 'done', 'dropped')),
    ranges     TEXT NOT NULL,                   -- JSON, the real positions of every input
    batch_time INTEGER NOT NULL,                -- milliseconds since 1970, the time records of this batch carry
    records    INTEGER,                         -- how many were read; known from prepare on
    PRIMARY KEY (lane, batch)
) WITHOUT ROWID;

CREATE TABLE attempt (
    lane    INTEGER NOT NULL REFERENCES lane,
    batch   INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    id      TEXT NOT NULL,                      -- random; part of every staging name
    fence   INTEGER NOT NULL,
    started INTEGER NOT NULL,
    error   TEXT,
    PRIMARY KEY (lane, batch, number)
) WITHOUT ROWID;

CREATE TABLE delivery (
    lane        INTEGER NOT NULL REFERENCES lane,
    batch       INTEGER NOT NULL,
    destination TEXT NOT NULL,
    hash        TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('prepared', 'done')),
    plugin      TEXT NOT NULL,                  -- as it was at prepare: prepared work is finished with these
    settings    TEXT NOT NULL,                  -- JSON, references unexpanded
    staged      TEXT NOT NULL,                  -- JSON, what commit publishes
    filtered    INTEGER NOT NULL,
    receipt     TEXT,                           -- JSON, from done on
    PRIMARY KEY (lane, batch, destination)
) WITHOUT ROWID;

CREATE TABLE total (
    lane        INTEGER NOT NULL REFERENCES lane,
    destination TEXT NOT NULL,
    delivered   INTEGER NOT NULL DEFAULT 0,
    filtered    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (lane, destination)
) WITHOUT ROWID;
