-- What has been done outside the store, and who is related to whom: projections of the entries, rebuilt by verify.

-- The seq of the newest restore or compaction up to an entry, 0 for none. Signed, where it is not 0.
ALTER TABLE entry ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;

-- A fork: its parent, the root of its family, and the place of its first entry in the log.
CREATE TABLE kin (
    stream INTEGER PRIMARY KEY REFERENCES stream,
    parent INTEGER NOT NULL REFERENCES stream,
    root INTEGER NOT NULL REFERENCES stream,
    leaf INTEGER NOT NULL
) STRICT;
CREATE INDEX kin_by_parent ON kin (parent, leaf);

INSERT INTO kin (stream, parent, root, leaf)
WITH RECURSIVE
fork (stream, parent, leaf) AS (
    SELECT child.no, parent.no, entry.leaf
    FROM stream AS child
    JOIN entry ON entry.id = (child.no << 32 | 1)
    JOIN stream AS parent ON parent.namespace = child.namespace AND parent.kind = 'lineage' AND parent.incarnation = 1
        AND parent.name = json_extract(CAST(entry.detail AS TEXT), '$.parent.lineage')
    WHERE child.kind = 'lineage' AND entry.kind = 2
),
line (stream, ancestor) AS (
    SELECT stream, parent FROM fork
    UNION
    SELECT line.stream, fork.parent FROM line JOIN fork ON fork.stream = line.ancestor
)
SELECT fork.stream, fork.parent, line.ancestor, fork.leaf
FROM fork JOIN line ON line.stream = fork.stream
WHERE line.ancestor NOT IN (SELECT stream FROM fork);

-- One effect. entry is the row id of the newest entry about it, which holds the whole record.
-- class: 0 read_only, 1 idempotent, 2 any other, 3 recorded after the fact without a key, 4 any other of one lineage alone.
CREATE TABLE effect (
    no INTEGER PRIMARY KEY,
    identity BLOB NOT NULL UNIQUE CHECK (length(identity) = 32),
    root INTEGER NOT NULL REFERENCES stream,
    name TEXT NOT NULL,
    policy INTEGER NOT NULL,
    class INTEGER NOT NULL,
    settled INTEGER NOT NULL,
    keyed INTEGER NOT NULL,
    entry INTEGER NOT NULL
) STRICT;
CREATE INDEX effect_by_name ON effect (root, name);
CREATE INDEX effect_unsettled ON effect (root) WHERE settled = 0;

-- In which streams an effect has entries: seqs of the first and the last of them.
CREATE TABLE trace (
    effect INTEGER NOT NULL REFERENCES effect,
    stream INTEGER NOT NULL REFERENCES stream,
    class INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (effect, stream)
) STRICT, WITHOUT ROWID;
CREATE INDEX trace_by_last ON trace (stream, class, last);
