"""Reasons for an instance's state, in words that several modules share."""

REFUSED = "its newest configuration was refused, the one before is in force"
"""Followed by ``: `` and the instance's message."""

ENDED = "its process ended"
"""Followed by how, ``; `` and its last output."""

AT_ONCE = "it ended at once"
"""Like `ENDED`, for a process that ended before or just after it executed its program."""
