"""What the agent needs of its parts that measure, decide and migrate, and of the switches."""

from typing import Any, Protocol

from nfagent.model import Decision, Instance, Migration, Port
from nfagent.monitor.measurement import Coefficient, Measurement


class Monitor(Protocol):
    """Measures, again and again. Every method may be called by any thread."""

    def newest(self) -> Measurement | None:
        """The newest sample; None before the first."""
        ...

    def history(self) -> list[Measurement]:
        """The samples of the last minutes, the oldest first."""
        ...

    def coefficients(self) -> list[Coefficient]:
        """What kinds of network functions were found to cost."""
        ...


class Decider(Protocol):
    """Says where instances should run. Every method raises `UnavailableError` while it has nothing to say."""

    def place(self, instance: Instance) -> str:
        """Where a new instance is to be started."""
        ...

    def proposal(self) -> Decision:
        """The newest plan, with its explanation."""
        ...

    def why(self, instance: Instance) -> dict[str, Any]:
        """Why this instance runs where it does, and not elsewhere."""
        ...

    def left_out(self) -> dict[str, str]:
        """Why wishes of tenants are not kept, by the ids of their chains; does not raise."""
        ...

    def dry_run(self, pins: dict[str, str], without: list[str]) -> Decision:
        """What would be decided if some were pinned and some were not there; nothing is done, nothing is kept."""
        ...


class Migrator(Protocol):
    """Moves an instance together with its state."""

    def run(self, migration: Migration) -> None:
        """Bring a migration from the step that is written to its end, and write that.

        Called again for the same migration after a crash of the agent. Until it returns the reconciler leaves the
        instance alone, a deletion included. Where it cannot be brought to its end now, its report says in ``waits``
        for what it waits, and this is called again.
        """
        ...

    def cancel(self, migration: Migration) -> None:
        """End a migration that waits, of an instance that is to be deleted, with all processes of the instance.

        Raises:
            LaunchError: one of them does not end.
        """
        ...

    def stop(self) -> None:
        """Give back what is kept between two calls for the same migration; none follows."""
        ...

    def tidy(self) -> None:
        """End what migrations that have ended have left behind, where their own try to end it failed."""
        ...


class Wiring(Protocol):
    """Connects virtual ports to slots. All methods are idempotent; they raise `WiringError`."""

    def connect(self, port: Port, location: str, interface: str, owner: str) -> None:
        """Make the port, at home on ``interface`` of ``location``; one that is at home elsewhere is moved there.

        It belongs to ``owner`` from then on, so that others do not take it away by mistake.
        """
        ...

    def homes(self, owner: str) -> dict[int, tuple[str, str]]:
        """Location and interface of the ports of ``owner``, by number: what `connect` made may have been lost."""
        ...

    def disconnect(self, port: Port) -> None:
        """Remove the port; the interface stays where it is."""
        ...
