-- The slot that a failed process had: its ports stay there, and oneswitchd, which knows that, may not answer.

ALTER TABLE running ADD COLUMN last_slot TEXT;
