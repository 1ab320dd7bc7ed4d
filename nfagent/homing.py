"""Brings virtual ports to interfaces by oneswitchd's moves, whatever move is in progress."""

from nfagent.errors import WiringError
from nfagent.model import Instance, InstancePort
from server.errors import ApiRefusedError
from server.oneswitchd.answers import PortMove, Stage, VirtualPort
from server.oneswitchd.client import Client
from server.oneswitchd.settling import LAGGING, settled

# nfagent sends markers down the old paths instead of waiting for them to be idle.
GRACE_MS = 100
_TURNS = 4  # a move that ends by itself in between takes one
_ENDING = LAGGING | {"no-move", "move-in-progress"}  # one has just ended or begun by itself
_ABORTABLE = ("preparing", "prepared")
_OWNER = "nfagent/"


def bring(client: Client, port: InstancePort, location: str, interface: str, until: Stage) -> None:
    """Move a port toward an interface as far as ``until``, from any state.

    oneswitchd may have forgotten a move, or hold an earlier one to another interface. As a port has one move at a time,
    that one is undone first or, after its flip, finished. A change of the executor that begins again is awaited:
    oneswitchd gathers the ports.

    Raises:
        ServerError: oneswitchd refused, or did not answer in time; call again.
        WiringError: the port did not stay on the interface.
    """
    forced = stays = False

    def once() -> bool:
        nonlocal forced, stays
        at = client.port(port.number)
        if is_at_home(at) and (at.switch, at.interface) == (location, interface):
            return True
        if at.move is None:
            client.move_port(port.number, location, interface, until, GRACE_MS, forced, own(at))
        elif is_to(at.move, location, interface):
            client.continue_move(port.number, until)
        elif stays and is_at_home(at):
            client.continue_move(port.number, "done")
            return False
        else:
            end_move(client, at)
            if is_at_home(at):
                stays = True
            else:
                forced = True  # do not wait for the switch that it left either
            return False
        return True

    for _ in range(_TURNS):
        if settled(once, _ENDING):
            return
    raise WiringError(f"port {port.number} ({port.name}): oneswitchd keeps moving it elsewhere")


def leave(client: Client, port: InstancePort, *, executor_too: bool = False) -> None:
    """End the move of a port, if there is one: undo it, or finish it after its flip.

    Args:
        client: to oneswitchd.
        port: whose move to end.
        executor_too: end a move of its executor only, too.
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


def end_move(client: Client, at: VirtualPort) -> None:
    """Undo the move of a port, or finish it after its flip; do nothing if it has just ended."""
    try:
        if at.move is not None and at.move.stage in _ABORTABLE:
            client.abort_move(at.number)
        else:
            client.continue_move(at.number, "done", force=True)  # it may wait for the very switch that it has to leave
    except ApiRefusedError as error:
        if error.code not in ("no-move", "move-past-abort"):
            raise


def owner_of(instance: Instance) -> str:
    """Return the owner of an instance's ports in oneswitchd, readable for operators."""
    return f"{_OWNER}{instance.project}/{instance.name}"


def own(at: VirtualPort) -> str | None:
    """Return a port's owner if that is a network function, even one that has been renamed."""
    return at.owner if at.owner is not None and at.owner.startswith(_OWNER) else None


def is_at_home(at: VirtualPort) -> bool:
    """Return whether a port's interface is stable: no move, or a move of its executor only.

    From the flip on, oneswitchd reports the new interface as the port's, along with the unfinished move. While it
    gathers ports, a move may change both. Only one that leaves an interface has old paths.
    """
    return at.move is None or (is_to(at.move, at.switch, at.interface) and not at.move.old_paths)


def is_to(move: PortMove, location: str, interface: str) -> bool:
    """Return whether a move leads there."""
    return (move.switch, move.interface) == (location, interface)
