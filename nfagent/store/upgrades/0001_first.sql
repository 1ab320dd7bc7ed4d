-- Desired state: what clients asked for.

CREATE TABLE instance (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of creation, for paging
    id          TEXT NOT NULL UNIQUE,
    name        TEXT NOT NULL,
    project     TEXT NOT NULL,
    kind        TEXT NOT NULL,
    flavor      TEXT NOT NULL,
    config      TEXT NOT NULL,                      -- JSON object
    labels      TEXT NOT NULL,                      -- JSON object
    pin         TEXT,
    target      TEXT,
    present     INTEGER NOT NULL DEFAULT 1,
    generation  INTEGER NOT NULL DEFAULT 1,
    created     REAL NOT NULL,
    UNIQUE (project, name)
) STRICT;

CREATE TABLE port (
    number      INTEGER PRIMARY KEY,                -- as the controllers see it
    instance    TEXT NOT NULL REFERENCES instance (id) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    name        TEXT NOT NULL UNIQUE,
    mac         TEXT NOT NULL,
    UNIQUE (instance, position)
) STRICT;

CREATE TABLE chain (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    project     TEXT NOT NULL,
    hops        TEXT NOT NULL,                      -- JSON list of instance ids
    latency_us  INTEGER,
    created     REAL NOT NULL,
    UNIQUE (project, name)
) STRICT;

-- Actual state: what the reconciler knows of processes.

CREATE TABLE running (
    incarnation TEXT PRIMARY KEY,
    instance    TEXT NOT NULL REFERENCES instance (id),
    role        TEXT NOT NULL CHECK (role IN ('serving', 'incoming')),
    location    TEXT NOT NULL,
    slot        TEXT,
    phase       TEXT NOT NULL CHECK (phase IN ('starting', 'active', 'stopping', 'error')),
    generation  INTEGER NOT NULL,
    since       REAL NOT NULL,
    pid         INTEGER,
    pid_started INTEGER,
    control     TEXT,
    reason      TEXT,
    UNIQUE (instance, role),
    UNIQUE (instance, location),                    -- a process is found again by these two
    UNIQUE (location, slot)                         -- a slot is for one process
) STRICT;

-- The migrations' journal. A step is written before it is begun.

CREATE TABLE migration (
    epoch       INTEGER PRIMARY KEY AUTOINCREMENT,
    instance    TEXT NOT NULL,
    project     TEXT NOT NULL,
    source      TEXT NOT NULL,
    target      TEXT NOT NULL,
    mode        TEXT NOT NULL CHECK (mode IN ('state', 'restart')),
    step        TEXT NOT NULL,
    requested   REAL NOT NULL,
    started     REAL,
    ended       REAL,
    outcome     TEXT,
    reason      TEXT,
    report      TEXT NOT NULL DEFAULT '{}',         -- JSON object
    CHECK ((ended IS NULL) = (outcome IS NULL))
) STRICT;
CREATE UNIQUE INDEX migration_open ON migration (instance) WHERE ended IS NULL;
CREATE INDEX migration_instance ON migration (instance);

CREATE TABLE decision (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    decided     REAL NOT NULL,
    problem     TEXT NOT NULL,                      -- JSON objects, and a JSON list of moves
    plan        TEXT NOT NULL,
    explanation TEXT NOT NULL,
    moves       TEXT NOT NULL,
    outcome     TEXT
) STRICT;

CREATE TABLE event (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    time        REAL NOT NULL,
    type        TEXT NOT NULL,
    subject     TEXT NOT NULL,
    project     TEXT,
    payload     TEXT NOT NULL                       -- JSON object
) STRICT;
CREATE INDEX event_subject ON event (subject);

-- Desired and actual together, with the status that follows from them.

CREATE VIEW instance_status AS
SELECT
    instance.*,
    CASE
        WHEN instance.present = 0 THEN 'deleting'
        WHEN migration.epoch IS NOT NULL THEN 'migrating'
        WHEN running.phase = 'active' THEN 'active'
        WHEN running.phase = 'error' THEN 'error'
        ELSE 'building'
    END AS status,
    running.location AS location,
    running.incarnation AS incarnation,
    migration.epoch AS epoch
FROM instance
LEFT JOIN running ON running.instance = instance.id AND running.role = 'serving'
LEFT JOIN migration ON migration.instance = instance.id AND migration.ended IS NULL;
