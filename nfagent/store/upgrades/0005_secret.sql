-- What only the two processes of a migration and this agent know, until it ends. Not a column: rows are shown to administrators.

CREATE TABLE migration_secret (
    epoch       INTEGER PRIMARY KEY,
    secret      TEXT NOT NULL
) STRICT;

INSERT INTO migration_secret SELECT epoch, lower(hex(randomblob(32))) FROM migration WHERE ended IS NULL;
