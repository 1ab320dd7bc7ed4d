"""Moves a running network function, with its state, between locations: exactly once, in order, nothing lost.

The protocol is that of nfs/README.md, "Migration"; each step is in the journal before it is begun, so that whoever
dies, what is written says how to go on: before COMMIT back, after it forward.
"""
