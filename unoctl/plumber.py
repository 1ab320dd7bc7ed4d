"""The OVSDB side of port commands: :mod:`nfagent.plumbing`, in unoctl's words and errors."""

from unoctl.errors import PlumbingError
from unoctl.topology import Server


class OvsdbPlumber:
    """Implements :class:`unoctl.ports.Plumber`."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def make_patches(self, number: int) -> list[str]:
        """See the protocol."""
        raise PlumbingError(f"nfagent.plumbing is not installed; cannot make patch ports for port {number}")

    def remove_patches(self, number: int, switches: list[str]) -> None:
        """See the protocol."""
        raise PlumbingError(
            f"nfagent.plumbing is not installed; cannot remove patch ports of port {number} on {switches}"
        )

    def attach(self, switch: str, interface: str) -> bool:
        """See the protocol."""
        raise PlumbingError(f"nfagent.plumbing is not installed; cannot attach {interface} on {switch}")

    def detach(self, switch: str, interface: str) -> bool:
        """See the protocol."""
        raise PlumbingError(f"nfagent.plumbing is not installed; cannot detach {interface} from {switch}")
