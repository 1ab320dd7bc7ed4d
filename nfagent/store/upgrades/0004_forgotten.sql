-- How many migrations are kept no more: they are still counted.

CREATE TABLE migration_forgotten (
    outcome     TEXT PRIMARY KEY,
    count       INTEGER NOT NULL
) STRICT;
