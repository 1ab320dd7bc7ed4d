"""The errors of following a packet; everything else is in :mod:`server.errors`."""

from server.errors import ServerError


class PacketError(ServerError):
    """Bytes that are not a valid packet."""

    code = "packet"


class TraceError(ServerError):
    """A packet's path cannot be followed any further."""

    code = "trace"
