-- The size that a process was started with, and the one that an instance had before a resize that is not confirmed.

ALTER TABLE running ADD COLUMN flavor TEXT NOT NULL DEFAULT '';
UPDATE running SET flavor = (SELECT instance.flavor FROM instance WHERE instance.id = running.instance);
ALTER TABLE instance ADD COLUMN resized_from TEXT;
