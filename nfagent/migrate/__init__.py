"""Moves a running network function, with its state, between locations: exactly once, in order, without loss.

The protocol is in nfs/README.md, "Migration". Each step is journalled before it starts, so that after any crash the
journal determines the way on: before COMMIT back, after it forward.
"""
