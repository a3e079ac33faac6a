-- How far each member of a shared ledger has acknowledged what the ledger tells: a seq of the ledger's stream. The only
-- table that no entry vouches for; a row that is lost only means that events are delivered again.
CREATE TABLE cursor (
    ledger INTEGER NOT NULL REFERENCES stream,
    member TEXT NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (ledger, member)
) STRICT, WITHOUT ROWID;
