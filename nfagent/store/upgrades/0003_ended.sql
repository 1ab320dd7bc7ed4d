-- What ended lately is asked for again and again.

CREATE INDEX migration_ended ON migration (ended);
CREATE INDEX decision_open ON decision (id) WHERE outcome IS NULL;
