"""Results of checks."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One sentence about one thing.

    Attributes:
        level: severity; ``warn``: it works, but less well or not everywhere.
        topic: the group of its check.
        subject: the thing.
        message: the observation, and what was expected if that differs.
        mend: one line that says how to repair it; "" if nothing needs repair.
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
    """Creates findings of one group of checks."""

    def __init__(self, name: str) -> None:
        self.name = name

    def ok(self, subject: str, message: str) -> Finding:
        """Report success."""
        return Finding(Level.OK, self.name, subject, message)

    def warn(self, subject: str, message: str, mend: str) -> Finding:
        """Report that it works, but less well or not everywhere."""
        return Finding(Level.WARN, self.name, subject, message, mend)

    def fail(self, subject: str, message: str, mend: str) -> Finding:
        """Report a failure."""
        return Finding(Level.FAIL, self.name, subject, message, mend)
