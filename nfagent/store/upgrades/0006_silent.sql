-- Since when a process has not answered, and the process of the network function itself: `pid` may be what entered its
-- namespaces for it.

ALTER TABLE running ADD COLUMN silent REAL;
ALTER TABLE running ADD COLUMN own_pid INTEGER;

DROP VIEW instance_status;
CREATE VIEW instance_status AS
SELECT
    instance.*,
    CASE
        WHEN instance.present = 0 THEN 'deleting'
        WHEN migration.epoch IS NOT NULL THEN 'migrating'
        WHEN running.silent IS NOT NULL THEN 'error'
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
