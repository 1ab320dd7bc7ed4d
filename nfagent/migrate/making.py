"""Assembles a migrator from agent.toml."""

from collections.abc import Callable
from pathlib import Path

from nfagent.catalog import Catalog
from nfagent.config import AgentConfig
from nfagent.launch.local import LocalLauncher
from nfagent.migrate.keepers import Keepers
from nfagent.migrate.migrator import StateMigrator
from nfagent.migrate.move import Parts
from nfagent.migrate.switching import Switching
from nfagent.starter import Starter
from nfagent.store import Store


def make_migrator(
    config: AgentConfig,
    store: Store,
    catalog: Catalog,
    starter: Starter,
    switching: Switching,
    local: LocalLauncher,
    is_down: Callable[[str], bool],
    is_cut_off: Callable[[str], bool],
) -> StateMigrator:
    """Build a migrator for the locations of agent.toml; ``local`` is the launcher of those on this machine."""
    locations = [config.find_location(name) for name in catalog.locations]
    addresses = {each.switch: each.address or (each.ssh and each.ssh.host.rpartition("@")[2]) for each in locations}
    return StateMigrator(
        Parts(
            store=store,
            starter=starter,
            switching=switching,
            keepers=Keepers(local),
            runtime=Path(config.runtime),
            home=catalog.home,
            addresses={name: address for name, address in addresses.items() if address},
            local=frozenset(each.switch for each in locations if each.ssh is None),
            copies=config.migrate.mode == "copy",
            rate_mbps=config.migrate.rate_mbps,
            is_down=is_down,
            is_cut_off=is_cut_off,
        )
    )
