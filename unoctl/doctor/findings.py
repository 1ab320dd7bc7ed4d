"""What a check says."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One sentence about one thing.

    Attributes:
        level: how bad it is; ``warn``: it works, but less well or not everywhere.
        topic: which group of checks it is from.
        subject: the thing.
        message: what was found, and what was expected where that differs.
        mend: one line that says what to do; "" where nothing is to be done.
    """

    level: Level
    topic: str
    subject: str
    message: str
    mend: str = ""

    def as_json(self) -> dict[str, str | None]:
        """Plain data."""
        return {
            "level": str(self.level),
            "topic": self.topic,
            "subject": self.subject,
            "message": self.message,
            "mend": self.mend or None,
        }


class Topic:
    """Makes findings of one group of checks."""

    def __init__(self, name: str) -> None:
        self.name = name

    def ok(self, subject: str, message: str) -> Finding:
        """All is well."""
        return Finding(Level.OK, self.name, subject, message)

    def warn(self, subject: str, message: str, mend: str) -> Finding:
        """It works, but less well or not everywhere."""
        return Finding(Level.WARN, self.name, subject, message, mend)

    def fail(self, subject: str, message: str, mend: str) -> Finding:
        """It does not work."""
        return Finding(Level.FAIL, self.name, subject, message, mend)
