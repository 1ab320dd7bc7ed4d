"""A virtual port brought to an interface by oneswitchd's moves, whatever other move of it stands in the way."""

from nfagent.errors import WiringError
from nfagent.model import Instance, Port
from unoctl.client import Client
from unoctl.errors import ApiRefusedError
from unoctl.model import Move, Stage
from unoctl.model import Port as SwitchPort
from unoctl.settling import LAGGING, settled

# Of moves that nfagent makes: it sends markers down the old paths instead of waiting for them to be idle.
_GRACE_MS = 100
_TURNS = 4  # a move that ends by itself in between costs one
_ENDING = LAGGING | {"no-move"}  # that: it has just ended by itself
_ABORTABLE = ("preparing", "prepared")
_OWNER = "nfagent/"


def bring(client: Client, port: Port, location: str, interface: str, until: Stage) -> None:
    """Move a port toward an interface as far as ``until``, from wherever it stands.

    oneswitchd may have forgotten a move, or hold one of before to another interface: that one is undone or, where it
    has flipped, finished first, since a port has one move at a time.

    Raises:
        UnoctlError: oneswitchd refused, or did not answer in time; it can be called again.
        WiringError: the port did not stay where it was brought.
    """
    forced = False

    def once() -> bool:
        nonlocal forced
        at = client.port(port.number)
        if is_at_home(at) and (at.switch, at.interface) == (location, interface):
            return True
        if at.move is None:
            client.move_port(port.number, location, interface, until, _GRACE_MS, forced, own(at))
        elif is_to(at.move, location, interface):
            client.continue_move(port.number, until)
        else:
            end_move(client, at)
            forced = True  # nor is the switch that it left waited for
            return False
        return True

    for _ in range(_TURNS):
        if settled(once, _ENDING):
            return
    raise WiringError(f"port {port.number} ({port.name}): oneswitchd moves it elsewhere again and again")


def leave(client: Client, port: Port, *, executor_too: bool = False) -> None:
    """End the move of a port, if there is one: undone, or finished where it has flipped.

    Args:
        client: of oneswitchd.
        port: that moves.
        executor_too: also one of its executor only.
    """

    def once() -> None:
        at = client.port(port.number)
        if at.move is not None and (executor_too or not is_at_home(at)):
            end_move(client, at)

    try:
        settled(once, _ENDING)
    except ApiRefusedError as error:
        if error.code != "port-unknown":
            raise


def end_move(client: Client, at: SwitchPort) -> None:
    """Undo the move of a port, or finish it where it has flipped; nothing happens if it has just ended."""
    try:
        if at.move is not None and at.move.stage in _ABORTABLE:
            client.abort_move(at.number)
        else:
            client.continue_move(at.number, "done", force=True)  # what it waits for may be what it has to leave
    except ApiRefusedError as error:
        if error.code not in ("no-move", "move-past-abort"):
            raise


def owner_of(instance: Instance) -> str:
    """The owner of an instance's ports in oneswitchd, for operators to read."""
    return f"{_OWNER}{instance.project}/{instance.name}"


def own(at: SwitchPort) -> str | None:
    """The owner of a port that belongs to a network function, also to one that has another name by now."""
    return at.owner if at.owner is not None and at.owner.startswith(_OWNER) else None


def is_at_home(at: SwitchPort) -> bool:
    """Whether a port's interface stays: it has no move, or one of its executor only, which is an operator's.

    From the flip on oneswitchd shows the new interface as the port's, with the move that is not done.
    """
    return at.move is None or at.move.executor != at.executor


def is_to(move: Move, location: str, interface: str) -> bool:
    """Whether a move leads there."""
    return (move.switch, move.interface) == (location, interface)
