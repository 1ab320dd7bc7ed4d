"""The agent, assembled from its parts."""

from pathlib import Path
from typing import Self

from nfagent.api.app import application
from nfagent.api.audit import Audit
from nfagent.api.discretion import Discretion
from nfagent.api.making import make_access, make_certificate
from nfagent.api.services import Services
from nfagent.api.serving import Serving
from nfagent.api.streams import Streams
from nfagent.asset_reader import AssetReader
from nfagent.bulletin import Bulletin
from nfagent.capacity import capacities
from nfagent.catalog import Catalog
from nfagent.config import AgentConfig
from nfagent.dashboard.routes import blueprint
from nfagent.databases import Databases
from nfagent.decide.decider import PlacementDecider
from nfagent.decide.outages import Outages
from nfagent.desired import Desired
from nfagent.fitness import LocationFitness
from nfagent.health import Health
from nfagent.launch import Launcher
from nfagent.launch.local import LocalLauncher
from nfagent.launch.ssh import SshLauncher
from nfagent.locations import Locations, Transition
from nfagent.log_keeper import LogKeeper
from nfagent.log_reader import LogReader
from nfagent.migrate.making import make_migrator
from nfagent.migrate.switching import ServerSwitching, Switching
from nfagent.monitor.making import make_monitor
from nfagent.overview import Overviews
from nfagent.protocols import Wiring
from nfagent.reconcile import Reconciler
from nfagent.starter import Starter
from nfagent.store import Store
from nfagent.tracing import Tracing
from nfagent.watch import Watch
from nfagent.wiring import ServerWiring
from server.config import ServerConfig


class Agent:
    """A running agent. Instances outlive it.

    Args:
        config: agent.toml.
        server: parsed server.toml.
        wiring: connects ports; None: on the switches of ``server``.
        switching: moves ports; None: on the switches of ``server``.

    Attributes:
        addresses: on which it serves.

    Raises:
        AgentError, ConfigError: it cannot start; nothing of it runs.
    """

    def __init__(
        self,
        config: AgentConfig,
        server: ServerConfig,
        wiring: Wiring | None = None,
        switching: Switching | None = None,
    ) -> None:
        catalog = Catalog.of(config, server)
        api = config.api
        access, self._certificate = make_access(api), make_certificate(api)
        switches = ServerWiring(server, self._is_cut_off)
        self._audit = Audit(config.audit, Path(config.state))
        self._tracing = Tracing.from_environment()
        self._store = Store(Path(config.state))
        self._bulletin = Bulletin(self._store)
        self._overviews = Overviews(self._store, self._bulletin)
        self._locations = Locations(self._bulletin, switches.quick_status, config.recovery.after_s, self._look_at)
        addresses = {switch.name: switch.ovsdb for switch in server.switch if switch.ovsdb is not None}
        self._databases = Databases(self._bulletin, addresses, self._locations.is_told_down)
        self._watch = Watch(self._wake)
        offload = None if server.oneswitchd.offload is None else server.oneswitchd.offload.removeprefix("unix:")
        local = LocalLauncher(Path(config.runtime), Path(config.state) / "log", offload)
        launchers = _launchers(config, catalog, local, offload)
        self._logs = LogKeeper(self._store, launchers, local, self._is_cut_off)
        starter = Starter(self._store, catalog, config, launchers, wiring or switches, self._watch.add)
        capacity = capacities(config, server)
        self._monitor = make_monitor(config, server, self._store, catalog, capacity, launchers, switches)
        moves = switching or ServerSwitching(server, switches)
        where = self._locations
        migrator = make_migrator(config, self._store, catalog, starter, moves, local, where.is_down, where.is_cut_off)
        self._fitness = LocationFitness(self._store, catalog, config, launchers, self._is_cut_off)
        self._decider = PlacementDecider(
            self._store,
            catalog,
            capacity,
            self._monitor,
            self._monitor.layout,
            Outages(catalog.locations, self._is_cut_off),
            self._fitness,
            config.decide,
        )
        self._reconciler = Reconciler(
            self._store,
            catalog,
            starter,
            self._decider,
            migrator,
            self._locations,
            self._monitor.flows,
            self._tracing,
        )
        self._health = Health(self._store, starter, self._is_cut_off, config.recovery.hung_after_s)
        services = Services(
            desired=Desired(self._store, catalog, self._fitness),
            bulletin=self._bulletin,
            overviews=self._overviews,
            config=config,
            server=server,
            access=access,
            audit=self._audit,
            discretion=Discretion(config, server),
            status=switches.status,
            ports=switches.ports,
            decider=self._decider,
            monitor=self._monitor,
            logs=LogReader(launchers, self._is_cut_off),
            assets=AssetReader(starter.control_path, self._is_cut_off),
            streams=Streams(config.api.streams),
            tracing=self._tracing,
        )
        self._watch.start()
        try:
            self._bulletin.start()
            self._reconciler.start()
            self._health.start()
            self._monitor.start()
            self._fitness.start()
            self._decider.start()
            self._locations.start()
            self._databases.start()
            self._logs.start()
            self._overviews.start()
            tls = self._certificate.context if self._certificate else None
            self._serving = Serving(application(services, blueprint(services)), api.listen, api.streams, tls)
        except BaseException:
            self._stop_inside()
            raise
        self.addresses = self._serving.addresses

    def reload(self) -> None:
        """Read the certificate and its key again; connections stay."""
        if self._certificate is not None:
            self._certificate.reload()

    def stop(self) -> None:
        """Stop the agent; instances keep running."""
        self._store.end_waits()
        self._serving.stop()
        self._stop_inside()

    def _wake(self, instance: str) -> None:
        self._reconciler.wake(instance)

    def _look_at(self, location: str, change: Transition) -> None:
        self._reconciler.look_at(location, change)

    def _is_cut_off(self, location: str) -> bool:
        return self._locations.is_cut_off(location)

    def _stop_inside(self) -> None:
        self._overviews.stop()
        self._logs.stop()
        self._databases.stop()
        self._locations.stop()
        self._bulletin.stop()
        self._health.stop()
        self._reconciler.stop()
        self._decider.stop()
        self._fitness.stop()
        self._monitor.stop()
        self._watch.stop()
        self._store.close()
        self._audit.close()
        if self._tracing is not None:
            self._tracing.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _launchers(config: AgentConfig, catalog: Catalog, local: LocalLauncher, offload: str | None) -> dict[str, Launcher]:
    found: dict[str, Launcher] = {}
    for location in catalog.locations:
        ssh = config.find_location(location).ssh
        found[location] = local if ssh is None else SshLauncher(location, ssh, Path(config.runtime), offload)
    return found
