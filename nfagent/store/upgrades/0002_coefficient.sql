-- What kinds of network functions cost, as it was learnt.

CREATE TABLE coefficient (
    kind                TEXT NOT NULL,
    location_class      TEXT NOT NULL CHECK (location_class IN ('host', 'nic')),
    millicores_per_mbps REAL NOT NULL,
    samples             INTEGER NOT NULL,
    deviation           REAL NOT NULL,
    PRIMARY KEY (kind, location_class)
) STRICT;

-- What came of a decision.

ALTER TABLE decision ADD COLUMN ended REAL;
ALTER TABLE decision ADD COLUMN report TEXT NOT NULL DEFAULT '{}';  -- JSON object
