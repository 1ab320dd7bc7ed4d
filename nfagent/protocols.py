"""Interfaces of the parts that measure, decide, migrate and connect ports."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from nfagent.measurement import Coefficient, Measurement, Step
from nfagent.model import Decision, Instance, InstancePort, Kind, Migration


class Monitor(Protocol):
    """Takes samples periodically. Any thread may call any method."""

    def newest(self) -> Measurement | None:
        """Return the newest sample; None before the first."""
        ...

    def history(self) -> list[Measurement]:
        """Return the samples of the last minutes, oldest first."""
        ...

    def day(self, series: str) -> Sequence[Step]:
        """Return the last 24 hours of a figure, as named by `nfagent.monitor.day`, oldest first."""
        ...

    def coefficients(self) -> list[Coefficient]:
        """Return the learnt costs of kinds."""
        ...


class Fitness(Protocol):
    """Knows which locations lack what functions need. Any thread may call any method."""

    def lacks(self, instance: Instance, location: str) -> str | None:
        """Return what a location lacked when it was last examined, in words; None: nothing is known to be lacking."""
        ...

    def look(self, kind: Kind, config: Mapping[str, Any], ports: int, location: str) -> str | None:
        """Examine a location now, for an instance with these properties; see `lacks`. It may take seconds."""
        ...


class Decider(Protocol):
    """Decides where instances run. Methods raise `UnavailableError` before the first decision."""

    def place(self, instance: Instance) -> str:
        """Return where to start a new instance."""
        ...

    def proposal(self) -> Decision:
        """Return the newest plan, with its explanation."""
        ...

    def why(self, instance: Instance) -> dict[str, Any]:
        """Explain why this instance runs where it does, and not elsewhere."""
        ...

    def left_out(self) -> dict[str, str]:
        """Return why tenants' wishes are dropped, by the ids of their chains; never raises."""
        ...

    def dry_run(self, pins: dict[str, str], without: list[str]) -> Decision:
        """Return the decision for hypothetical pins and absences, without carrying it out or recording it."""
        ...


class Migrator(Protocol):
    """Moves an instance together with its state."""

    def run(self, migration: Migration) -> None:
        """Bring a migration from its journalled step to its end, and record that.

        Call it again for the same migration after a crash of the agent. Until it returns, the reconciler leaves the
        instance alone, even for a deletion. If the migration is blocked, its report says in ``waits`` what it waits
        for, and the reconciler calls again.
        """
        ...

    def cancel(self, migration: Migration) -> None:
        """End a waiting migration, and all processes of its instance, which is to be deleted.

        Raises:
            LaunchError: one of them does not end.
        """
        ...

    def stop(self) -> None:
        """Release what is kept between calls for the same migration; no call follows."""
        ...

    def tidy(self) -> None:
        """End leftovers of ended migrations whose own cleanup failed."""
        ...


class Wiring(Protocol):
    """Connects virtual ports to slots. All methods are idempotent and raise `WiringError`."""

    def connect(self, ports: Sequence[tuple[InstancePort, str]], location: str, owner: str) -> None:
        """Create ports, each with its home on an interface of ``location``, or move them there.

        ``owner`` owns them from then on, which protects them from accidental deletion.
        """
        ...

    def homes(self, owner: str) -> dict[int, tuple[str, str]]:
        """Return location and interface of the ports of ``owner``, by number, to detect lost ones."""
        ...

    def carried(self, location: str) -> dict[str, set[int]]:
        """Return the numbers of all ports on the interfaces of ``location``, by interface; or raise, but soon.

        A port in a move counts for the interface that it leaves and for the one that it goes to.
        """
        ...

    def disconnect(self, port: InstancePort) -> None:
        """Remove the port; the interface stays."""
        ...
