"""``unoctl port``: creates, moves and removes virtual ports, with plumbing and oneswitchd together.

A new port is plumbed first (patch pairs on every switch, the interface on ``edge``), then mapped by oneswitchd. If
oneswitchd refuses, unoctl undoes the plumbing that it has just made, and nothing else.

An interface that a port no longer uses (after a move, after ``del``) stays on ``edge`` without ``--detach``: no rule
leads to it, so it carries nothing, and adding it again stalls the switch's traffic for some 20 ms. ``--detach`` never
removes interfaces that plumbing did not add.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from server.config import ServerConfig
from server.errors import ApiNoAnswerError, ApiRefusedError, ApiUnreachableError, ServerError, UsageError
from server.names import PORT_MAX
from server.oneswitchd.answers import Stage, VirtualPort
from server.oneswitchd.client import Client, as_json
from server.oneswitchd.settling import settled
from unoctl.render import Progress, View, table

AUTO_TRIES = 5


class Plumber(Protocol):
    """The OVSDB operations that unoctl needs. Every method raises PlumbingError."""

    def make_patches(self, number: int) -> list[str]:
        """Create ``virt-N``/``edge-N`` on every switch; return the switches that lacked them."""
        ...

    def remove_patches(self, number: int, switches: list[str]) -> None:
        """Remove ``virt-N``/``edge-N`` from these switches; ignore missing ones."""
        ...

    def attach(self, switch: str, interface: str) -> bool:
        """Add an interface to ``edge``; return False if it was already there."""
        ...

    def detach(self, switch: str, interface: str) -> bool:
        """Remove an interface that plumbing attached from ``edge``; return False if it was not there."""
        ...


def parse_number(text: str) -> int | None:
    """Parse a port number; ``auto`` is None.

    Raises:
        UsageError: neither ``auto`` nor 1 to 65023.
    """
    if text == "auto":
        return None
    if text.isdecimal() and 1 <= int(text) <= PORT_MAX:
        return int(text)
    raise UsageError(f"'{text}' is not a virtual port number; expected 1 to {PORT_MAX}, or auto")


def add(
    server: ServerConfig,
    client: Client,
    plumber: Plumber,
    number: int | None,
    name: str | None,
    switch: str,
    interface: str,
    executor: str | None,
    progress: Progress,
) -> View:
    """Create a virtual port.

    Args:
        server: the server.
        client: oneswitchd.
        plumber: OVSDB of the switches.
        number: its number; None: the lowest free one.
        name: its name; None: the interface's.
        switch: its home.
        interface: its interface on the home's ``edge`` bridge.
        executor: the switch that runs its pipeline, or ``home``; None: the server's default.
        progress: shows the progress.

    Raises:
        ApiRefusedError: oneswitchd refused; the plumbing is unchanged.
        ConfigError: unknown switch.
        PlumbingError: a switch's OVSDB could not be changed; the plumbing is unchanged.
    """
    server.find_switch(switch)
    tries = 1 if number is not None else AUTO_TRIES
    for attempt in range(tries):
        chosen = number if number is not None else _lowest_free(client)
        try:
            return _port_view(_add_once(client, plumber, chosen, name, switch, interface, executor, progress))
        except ApiRefusedError as error:
            # Another client may take the number between the question and the request.
            if error.code != "port-number-taken" or attempt == tries - 1:
                raise
    raise AssertionError("unreachable: the loop returns or raises")


def _add_once(
    client: Client,
    plumber: Plumber,
    number: int,
    name: str | None,
    switch: str,
    interface: str,
    executor: str | None,
    progress: Progress,
) -> VirtualPort:
    # Ask oneswitchd first, so that nothing is plumbed if it is not running.
    _refuse_taken(client.ports(), number, switch, interface)
    with ExitStack() as undo:
        progress.update(f"port {number}: patch ports on every switch")
        made = plumber.make_patches(number)
        undo.callback(plumber.remove_patches, number, made)
        progress.update(f"port {number}: {interface} on edge of {switch}")
        if plumber.attach(switch, interface):
            undo.callback(plumber.detach, switch, interface)
        plumbed = undo.pop_all()
    progress.update(f"port {number}: waiting for oneswitchd")
    with _undone_if_refused(plumbed):
        return _settled(lambda: client.add_port(number, name, switch, interface, executor), lambda: client.port(number))


# The code of a move that resumes by itself when a bridge has confirmed its rules.
_WAITS = "move-waits"


@contextmanager
def _undone_if_refused(plumbed: ExitStack) -> Iterator[None]:
    """Undo plumbing if oneswitchd surely did not act on it; after any other error it may be in use already."""
    try:
        yield
    except (ApiRefusedError, ApiUnreachableError) as error:
        if not (isinstance(error, ApiRefusedError) and error.code == _WAITS):
            plumbed.close()
        raise


def _refuse_taken(ports: list[VirtualPort], number: int, switch: str, interface: str) -> None:
    """Refuse what oneswitchd would refuse, before plumbing anything."""
    for port in ports:
        if port.number == number:
            raise ApiRefusedError(409, "port-number-taken", f"port {number} is {port.name} on {port.switch}")
        if (port.switch, port.interface) == (switch, interface):
            raise ApiRefusedError(
                409, "interface-taken", f"{interface} of {switch} is already port {port.number} ({port.name})"
            )


def _settled(request: Callable[[], VirtualPort], outcome: Callable[[], VirtualPort]) -> VirtualPort:
    """Send a request, once oneswitchd has learnt of new ports; after a time-out, check the outcome.

    Raises:
        ApiNoAnswerError: the outcome is unknown, e.g. because oneswitchd has ended since.
    """
    try:
        return settled(request)
    except ApiNoAnswerError as unanswered:
        try:
            return outcome()
        except ApiUnreachableError:
            raise unanswered from None


def _lowest_free(client: Client) -> int:
    taken = {port.number for port in client.ports()}
    for number in range(1, PORT_MAX + 1):
        if number not in taken:
            return number
    raise UsageError(f"all {PORT_MAX} virtual port numbers are taken; remove one with: unoctl port del V")


def move(
    server: ServerConfig,
    client: Client,
    plumber: Plumber,
    virtual_port: str,
    switch: str,
    interface: str,
    until: Stage,
    grace_ms: int | None,
    detach: bool,
    progress: Progress,
    force: bool = False,
) -> View:
    """Move a port to another interface, make-before-break.

    The new interface is added to ``edge`` first. With ``detach`` the old one is removed from ``edge`` after the move.
    With ``force`` the port moves whatever its owner.

    Raises:
        ApiRefusedError: oneswitchd refused; the plumbing is unchanged.
    """
    server.find_switch(switch)
    before = client.find_port(virtual_port)
    plumbed = ExitStack()
    progress.update(f"port {before.number}: {interface} on edge of {switch}")
    if plumber.attach(switch, interface):
        plumbed.callback(plumber.detach, switch, interface)
    request = _request_move(client, before.number, switch, interface, until, grace_ms, before.owner if force else None)
    with _undone_if_refused(plumbed):
        port = _watched(client, before.number, request, progress)
    if detach:
        _detach_left(client, plumber, before, port)
    return _port_view(port)


def _request_move(
    client: Client, number: int, switch: str, interface: str, until: Stage, grace_ms: int | None, owner: str | None
) -> Callable[[], VirtualPort]:
    def request() -> VirtualPort:
        return client.move_port(number, switch, interface, until, grace_ms, owner=owner)

    return lambda: _settled(request, lambda: client.port(number))


def execute(
    client: Client, virtual_port: str, executor: str, until: Stage, grace_ms: int | None, progress: Progress
) -> View:
    """Run a port's pipeline at another switch, or at ``home``, make-before-break.

    Raises:
        ApiRefusedError: oneswitchd refused.
    """
    number = client.find_port(virtual_port).number

    def request() -> VirtualPort:
        return client.change_executor(number, executor, until, grace_ms)

    return _port_view(_watched(client, number, request, progress))


def continue_move(
    client: Client, plumber: Plumber, virtual_port: str, until: Stage, force: bool, detach: bool, progress: Progress
) -> View:
    """Resume a stopped move, with ``force`` without unresponsive switches; ``detach`` as for :func:`move`."""
    before = client.find_port(virtual_port)
    port = _watched(client, before.number, lambda: client.continue_move(before.number, until, force), progress)
    if detach and before.move and (before.move.switch, before.move.interface) == (before.switch, before.interface):
        progress.update(f"port {before.number}: had already flipped, so its old interface is unknown and stays")
    elif detach:
        _detach_left(client, plumber, before, port)
    return _port_view(port)


def abort_move(client: Client, plumber: Plumber, virtual_port: str, detach: bool) -> View:
    """Undo a move that is only prepared; ``detach`` removes its new interface from ``edge``."""
    before = client.find_port(virtual_port)
    port = client.abort_move(before.number)
    if detach:
        _detach_left(client, plumber, before, port)
    return _port_view(port)


def delete(
    server: ServerConfig, client: Client, plumber: Plumber, virtual_port: str, detach: bool, force: bool = False
) -> View:
    """Remove a virtual port and its patch ports; with ``detach`` its interface, too, with ``force`` despite an owner.

    Raises:
        ApiRefusedError: the port has an owner; nothing was changed.
    """
    port = client.find_port(virtual_port)
    client.delete_port(port.number, force=force)
    plumber.remove_patches(port.number, [switch.name for switch in server.switch])
    detached = detach and plumber.detach(port.switch, port.interface)
    data = {"deleted": as_json(port), "detached": detached}
    rows = [(port.number, port.name, "deleted", port.switch, port.interface)]
    return View(data, table(("PORT", "NAME", "STATE", "SWITCH", "INTERFACE"), rows, right=("PORT",)))


def _detach_left(client: Client, plumber: Plumber, before: VirtualPort, after: VirtualPort) -> None:
    """Remove the port's old interface from ``edge`` after its move, unless another port uses it."""
    if after.move is not None:
        return
    ends = {(before.switch, before.interface)}
    if before.move is not None:
        ends.add((before.move.switch, before.move.interface))
    used = {(port.switch, port.interface) for port in client.ports()}
    for switch, interface in sorted(ends - used):
        plumber.detach(switch, interface)


def _watched(client: Client, number: int, request: Callable[[], VirtualPort], progress: Progress) -> VirtualPort:
    """Send a request that answers late, and show the move's stage meanwhile."""
    answer: list[VirtualPort] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            answer.append(request())
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread, where it is raised
            failure.append(error)

    progress.update(f"port {number}: moving")
    thread = threading.Thread(target=work, name=f"move-{number}", daemon=True)
    thread.start()
    with client.another() as watcher:
        while thread.is_alive():
            thread.join(0.1)
            _say_stage(watcher, number, progress)
    if failure:
        raise failure[0]
    return answer[0]


def _say_stage(watcher: Client, number: int, progress: Progress) -> None:
    try:
        port = watcher.port(number)
    except ServerError:
        return
    if port.move is not None:
        progress.update(f"port {number}: {port.move.stage} ({port.move.switch} {port.move.interface})")


def _port_view(port: VirtualPort) -> View:
    moving = f"{port.move.stage}: {port.move.switch} {port.move.interface}" if port.move else None
    columns = ("PORT", "NAME", "STATE", "SWITCH", "INTERFACE", "FLOW-ID", "MOVE")
    rows = [(port.number, port.name, port.state, port.switch, port.interface, port.flow_id, moving)]
    return View(as_json(port), table(columns, rows, right=("PORT", "FLOW-ID")))
