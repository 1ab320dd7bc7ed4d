"""Why an instance is not as it should be, in words that more than one part uses."""

REFUSED = "its newest configuration was refused, the one before is in force"
"""Followed by ``: `` and the instance's own words."""

ENDED = "its process ended"
"""Followed by how, ``; `` and its last words."""

AT_ONCE = "it ended at once"
"""As `ENDED`, of a process that has not become its program, or only for a moment."""
