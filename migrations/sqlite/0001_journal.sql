-- The journal and what hangs on it. docs/format.md explains each table; row ids of entries are stream << 32 | seq.

CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    origin TEXT NOT NULL,
    format INTEGER NOT NULL,
    epoch INTEGER NOT NULL
) STRICT;

CREATE TABLE namespace (no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE actor (no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE writer (no INTEGER PRIMARY KEY, public BLOB NOT NULL UNIQUE CHECK (length(public) = 32)) STRICT;

CREATE TABLE stream (
    no INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL REFERENCES namespace,
    kind TEXT NOT NULL CHECK (kind IN ('lineage', 'ledger', 'store')),
    name TEXT NOT NULL,
    incarnation INTEGER NOT NULL DEFAULT 1,
    UNIQUE (namespace, kind, name, incarnation)
) STRICT;

-- auth is signature (64) || state root (32) || packs (16). lag is seq - revision, so that it is 0, which SQLite stores in
-- no bytes, as long as every entry is a checkpoint. time counts microseconds since store.epoch.
CREATE TABLE entry (
    id INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    leaf INTEGER NOT NULL,
    lag INTEGER NOT NULL,
    step INTEGER NOT NULL,
    time INTEGER NOT NULL,
    actor INTEGER NOT NULL REFERENCES actor,
    writer INTEGER NOT NULL REFERENCES writer,
    term INTEGER NOT NULL,
    auth BLOB NOT NULL,
    detail BLOB
) STRICT;

CREATE TRIGGER entry_is_never_updated BEFORE UPDATE ON entry
BEGIN SELECT RAISE(ABORT, 'entries are never updated'); END;
CREATE TRIGGER entry_is_never_deleted BEFORE DELETE ON entry
BEGIN SELECT RAISE(ABORT, 'entries are never deleted'); END;

CREATE TABLE tail (id INTEGER PRIMARY KEY, block BLOB NOT NULL) STRICT;

-- id is stream << 32 | seq of the first record. The small columns come first: they are read without the frames.
CREATE TABLE segment (
    id INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    number INTEGER NOT NULL,
    base INTEGER NOT NULL,
    digest BLOB NOT NULL,
    frontier BLOB NOT NULL,
    parts BLOB NOT NULL,
    ops BLOB NOT NULL,
    items BLOB NOT NULL
) STRICT;

CREATE TABLE blob (
    no INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL REFERENCES namespace,
    content BLOB NOT NULL,
    frame BLOB NOT NULL,
    UNIQUE (namespace, content)
) STRICT;

CREATE TABLE landed (
    stream INTEGER NOT NULL REFERENCES stream,
    key TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (stream, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE log (one INTEGER PRIMARY KEY CHECK (one = 1), size INTEGER NOT NULL, frontier BLOB NOT NULL) STRICT;
CREATE TABLE note (size INTEGER PRIMARY KEY, text BLOB NOT NULL) STRICT;
