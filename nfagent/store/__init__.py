"""Desired state, actual state and events, in one SQLite database.

Each module has the functions of one noun. Those that write take the `Change` of a transaction, those that read any
connection; a change without an event is refused.
"""

from nfagent.store.database import Change, Outlives, Store

__all__ = ["Change", "Outlives", "Store"]
