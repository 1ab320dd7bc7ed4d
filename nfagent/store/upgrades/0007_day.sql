-- Measured figures of the last 24 hours, in steps of 5 minutes (nfagent/monitor/day.py): mean and maximum of each.

CREATE TABLE day (
    series      TEXT NOT NULL,
    at          INTEGER NOT NULL,                   -- start of the step, seconds since 1970
    mean        REAL NOT NULL,
    most        REAL NOT NULL,
    PRIMARY KEY (series, at)
) STRICT, WITHOUT ROWID;
