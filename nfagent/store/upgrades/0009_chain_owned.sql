-- Chains that were ordered together with their instances, and their deletion, which ends with that of the instances.

ALTER TABLE chain ADD COLUMN owned TEXT NOT NULL DEFAULT '[]';  -- JSON list of instance ids
ALTER TABLE chain ADD COLUMN present INTEGER NOT NULL DEFAULT 1;
