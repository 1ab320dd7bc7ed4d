"""Plumbing against a real Open vSwitch."""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ovsdbapp.exceptions import TimeoutException

from lab.ovs import OvsSwitch
from lab.unixctl import unixctl
from server.config import ServerConfig, SwitchConfig
from server.errors import (
    ConfigError,
    DatabaseUnreachableError,
    InterfaceError,
    OwnershipError,
    PlumbingError,
    SwitchNotApplyingError,
)
from server.names import patch_names
from server.openvswitch.bridges import MARK, Plumbing
from server.openvswitch.layout import Interface, Layout
from server.openvswitch.ovsdb import SwitchDatabase
from server.openvswitch.servers import ServerPlumbing

LAYOUT = Layout((1, 2), (Interface("pcie-snic0", "dummy"),), (Interface("vm1", "dummy"),))


@pytest.fixture
def plumbing(switch_config: SwitchConfig) -> Iterator[Plumbing]:
    with Plumbing(switch_config, datapath_type="dummy") as plumbing:
        yield plumbing


@pytest.fixture
def database(switch_config: SwitchConfig) -> Iterator[SwitchDatabase]:
    """Open a second connection to the same database."""
    database = SwitchDatabase(switch_config.name, str(switch_config.ovsdb))
    yield database
    database.close()


def test_plumbing_follows_the_contract(plumbing: Plumbing, database: SwitchDatabase) -> None:
    assert plumbing.ensure(LAYOUT) is True
    state = plumbing.describe()
    assert state.bridges == ("edge", "virt")
    names = {(port.bridge, port.name): port for port in state.ports}
    for number in (1, 2):
        assert names["virt", f"virt-{number}"].ofport == number
        assert names["edge", f"edge-{number}"].role == "patch"
    assert names["virt", "virt-mc"].ofport == 0xFE00
    assert names["edge", "pcie-snic0"].role == "pcie"
    assert names["edge", "vm1"].role == "interface"
    with database.lock:
        for bridge in database.rows("Bridge"):
            assert bridge.fail_mode == ["secure"]
            assert bridge.datapath_type == "dummy"
            assert bridge.external_ids[MARK] == bridge.name
        peers = {row.name: row.options.get("peer") for row in database.rows("Interface") if row.type == "patch"}
    assert peers["virt-1"] == "edge-1"
    assert peers["edge-1"] == "virt-1"


def test_several_clients_change_a_switch_concurrently(plumbing: Plumbing, switch_config: SwitchConfig) -> None:
    plumbing.ensure(Layout((), (), ()))

    def change(number: int) -> None:
        with Plumbing(switch_config, datapath_type="dummy") as own:
            assert own.add_virtual_port(number)
            assert own.attach(Interface(f"vm{number}", "dummy"))
        if number % 2:
            with Plumbing(switch_config, datapath_type="dummy") as own:
                assert own.remove_virtual_ports(number)

    numbers = range(10, 34)
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(change, numbers)) == [None] * len(numbers)
    state = plumbing.describe()
    for number in numbers:
        found = [state.find(name) is not None for name in (f"vm{number}", f"virt-{number}", f"edge-{number}")]
        assert found == [True, number % 2 == 0, number % 2 == 0]


def test_a_client_of_some_ports_reads_and_changes_no_others(plumbing: Plumbing, switch_config: SwitchConfig) -> None:
    plumbing.ensure(Layout((1, 2), (), (Interface("vm1", "dummy"),)))
    mine = (*patch_names(7), "vm7")
    with Plumbing(switch_config, datapath_type="dummy", ports=mine) as own:
        assert own.describe().ports == ()
        assert own.add_virtual_port(7) is True
        assert own.attach(Interface("vm7", "dummy")) is True
        assert {port.name for port in own.describe().ports} == set(mine)
    with Plumbing(switch_config, datapath_type="dummy", ports=mine) as own:
        assert own.add_virtual_port(7) is False
        assert own.remove_virtual_ports(7) is True
        assert own.detach("vm7") is True
        assert own.describe().ports == ()
    names = {port.name for port in plumbing.describe().ports}
    assert {"vm1", *patch_names(1), *patch_names(2)} <= names
    assert not names & set(mine)


def test_a_second_ensure_changes_nothing(plumbing: Plumbing, database: SwitchDatabase) -> None:
    plumbing.ensure(LAYOUT)
    with database.lock:
        before = database.rows("Open_vSwitch")[0].next_cfg
    assert plumbing.ensure(LAYOUT) is False
    assert plumbing.add_virtual_port(2) is False
    assert plumbing.attach(Interface("vm1", "dummy")) is False
    with database.lock:
        assert database.rows("Open_vSwitch")[0].next_cfg == before


def test_ports_and_interfaces_are_connected_in_one_transaction(plumbing: Plumbing, database: SwitchDatabase) -> None:
    def transactions() -> int:
        with database.lock:
            return database.rows("Open_vSwitch")[0].next_cfg

    plumbing.ensure(LAYOUT)
    before = transactions()
    wanted = [Interface(f"vm{number}", "dummy") for number in (7, 8)]
    assert plumbing.connect([7, 8], wanted) is True
    database.await_applied()
    assert transactions() == before + 1
    assert {*patch_names(7), *patch_names(8), "vm7", "vm8"} <= {port.name for port in plumbing.describe().ports}
    assert plumbing.connect([7, 8], wanted) is False
    assert transactions() == before + 1


def test_ensure_removes_nothing(plumbing: Plumbing) -> None:
    plumbing.ensure(LAYOUT)
    plumbing.add_virtual_port(7)
    assert plumbing.ensure(Layout((1, 3))) is True
    state = plumbing.describe()
    assert all(state.find(f"virt-{number}") for number in (1, 2, 3, 7))


def test_ports_are_added_and_removed(plumbing: Plumbing) -> None:
    plumbing.ensure(LAYOUT)
    assert plumbing.add_virtual_port(65023) is True
    port = plumbing.describe().find("virt-65023")
    assert port is not None
    assert port.ofport == 65023
    assert plumbing.remove_virtual_ports(65023) is True
    assert plumbing.remove_virtual_ports(65023) is False
    assert plumbing.describe().find("edge-65023") is None
    assert plumbing.attach(Interface("vm9", "dummy")) is True
    assert plumbing.detach("vm9") is True
    assert plumbing.detach("vm9") is False


@pytest.mark.parametrize("number", [0, 65024, -1])
def test_numbers_outside_the_range_are_refused(plumbing: Plumbing, number: int) -> None:
    plumbing.ensure(LAYOUT)
    with pytest.raises(ValueError, match="not a virtual port number"):
        plumbing.add_virtual_port(number)


def test_an_interface_that_ovs_cannot_open_is_reported_and_removed(plumbing: Plumbing) -> None:
    plumbing.ensure(LAYOUT)
    with pytest.raises(InterfaceError, match=r"switch hypervisor: interface nosuch: .*No such device") as caught:
        plumbing.attach("nosuch")
    assert list(caught.value.failures) == ["nosuch"]
    assert plumbing.describe().find("nosuch") is None


def test_one_bad_interface_does_not_affect_the_others(plumbing: Plumbing) -> None:
    bad = Layout((1,), (), (Interface("vm1", "dummy"), Interface("nosuch")))
    with pytest.raises(InterfaceError, match="nosuch"):
        plumbing.ensure(bad)
    state = plumbing.describe()
    assert state.find("vm1")
    assert state.find("virt-1")


def test_a_taken_port_number_is_refused(plumbing: Plumbing, database: SwitchDatabase) -> None:
    plumbing.ensure(Layout((1,)))
    database.commit([database.api.add_port("virt", "stranger", type="dummy", ofport_request=5)])
    with pytest.raises(InterfaceError, match="because another port has 5"):
        plumbing.add_virtual_port(5)
    assert plumbing.describe().find("edge-5") is not None  # it could be opened; only virt-5 was removed
    assert plumbing.describe().find("virt-5") is None


def test_a_port_that_fails_later_is_noticed(plumbing: Plumbing, ovs: OvsSwitch) -> None:
    plumbing.ensure(Layout((1,), (), (Interface("vm1", "dummy", {"pstream": f"punix:{ovs.directory}/a.sock"}),)))
    assert plumbing.ensure(Layout((1,), (), (Interface("vm1", "dummy"),))) is False


def test_foreign_ports_are_left_alone(plumbing: Plumbing, database: SwitchDatabase) -> None:
    plumbing.ensure(LAYOUT)
    database.commit([database.api.add_port("edge", "theirs", type="dummy")])
    database.commit([database.api.add_port("virt", "virt-9", type="dummy")])
    assert plumbing.attach("theirs") is False
    with pytest.raises(OwnershipError, match="port theirs was created by others"):
        plumbing.detach("theirs")
    with pytest.raises(OwnershipError, match="virt-9"):
        plumbing.add_virtual_port(9)
    with pytest.raises(OwnershipError, match="virt-9"):
        plumbing.remove_virtual_ports(9)
    with pytest.raises(OwnershipError, match="theirs"):
        plumbing.remove()
    assert plumbing.describe().find("theirs")


def test_an_interface_on_another_bridge_is_refused(plumbing: Plumbing, database: SwitchDatabase) -> None:
    plumbing.ensure(LAYOUT)
    database.commit([database.api.add_br("ovsbr1", datapath_type="dummy")])
    database.commit([database.api.add_port("ovsbr1", "p0", type="dummy")])
    with pytest.raises(OwnershipError, match="port p0 already exists on bridge ovsbr1, but is required on edge"):
        plumbing.attach("p0")


def test_own_ports_of_another_role_are_not_confused(plumbing: Plumbing) -> None:
    plumbing.ensure(LAYOUT)
    for name in ("edge-1", "pcie-snic0", "edge"):
        with pytest.raises(OwnershipError):
            plumbing.detach(name)
        with pytest.raises(OwnershipError):
            plumbing.attach(name)


def test_a_foreign_bridge_that_does_not_fit_is_refused(plumbing: Plumbing, database: SwitchDatabase) -> None:
    database.commit([database.api.add_br("virt", datapath_type="dummy")])
    with pytest.raises(OwnershipError, match="bridge virt exists with fail_mode standalone"):
        plumbing.ensure(LAYOUT)
    database.commit([database.api.db_set("Bridge", "virt", ("fail_mode", "secure"))])
    plumbing.ensure(LAYOUT)
    assert plumbing.remove() is True  # edge only
    assert plumbing.describe().bridges == ("virt",)


def test_remove_deletes_all_own_parts(plumbing: Plumbing) -> None:
    plumbing.ensure(LAYOUT)
    assert plumbing.remove() is True
    assert plumbing.remove() is False
    assert plumbing.describe().ports == ()


def test_bridges_configured_for_tcp_listen(switch_config: SwitchConfig, database: SwitchDatabase) -> None:
    remote = switch_config.model_copy(update={"virt": "tcp:127.0.0.1:16640", "edge": "tcp:127.0.0.1:16641"})
    with Plumbing(remote, datapath_type="dummy") as plumbing:
        plumbing.ensure(Layout((1,)))
        assert plumbing.ensure(Layout((1,))) is False
    with database.lock:
        targets = sorted(row.target for row in database.rows("Controller"))
    assert targets == ["ptcp:16640:127.0.0.1", "ptcp:16641:127.0.0.1"]


def test_ovs_leaves_foreign_shaping_alone(plumbing: Plumbing, database: SwitchDatabase) -> None:
    plumbing.ensure(Layout((), (Interface("pcie", "dummy", shaped_elsewhere=True),)))
    with database.lock:
        port = database.row("Port", "pcie")
        assert port is not None
        assert [qos.type for qos in port.qos] == ["linux-noop"]


def test_a_stopped_vswitchd_is_reported(plumbing: Plumbing, switch_config: SwitchConfig, ovs: OvsSwitch) -> None:
    plumbing.ensure(LAYOUT)
    with Plumbing(switch_config, datapath_type="dummy", timeout_s=2.0) as impatient, contextlib.ExitStack() as undo:
        os.kill(ovs.pids["ovs-vswitchd"], signal.SIGSTOP)
        undo.callback(os.kill, ovs.pids["ovs-vswitchd"], signal.SIGCONT)
        for _ in range(2):  # even without further changes
            with pytest.raises(SwitchNotApplyingError, match="did not apply a change within 2 s"):
                impatient.add_virtual_port(3)
    assert plumbing.add_virtual_port(3) is False


def test_plumbing_survives_a_restarted_database(plumbing: Plumbing, ovs: OvsSwitch) -> None:
    plumbing.ensure(LAYOUT)
    ovs.kill("ovsdb-server")
    ovs.launch("ovsdb-server")
    ovs.await_up("ovsdb-server", lambda pid: Path(f"/proc/{pid}").exists())
    assert plumbing.add_virtual_port(3) is True


@pytest.mark.parametrize(
    ("remote", "why"),
    [("unix:/nowhere/db.sock", "No such file"), ("tcp:127.0.0.1:1", "refused"), ("ssl:127.0.0.1:1", "refused")],
)
def test_a_missing_database_is_reported(switch_config: SwitchConfig, remote: str, why: str) -> None:
    with pytest.raises(DatabaseUnreachableError, match=f"switch hypervisor: no database at {remote}: .*{why}"):
        Plumbing(switch_config.model_copy(update={"ovsdb": remote}))


def test_an_unresponsive_database_times_out(tmp_path: Path) -> None:
    remote, said = f"unix:{tmp_path}/db.sock", list[str]()

    def dial() -> None:
        try:
            SwitchDatabase("hypervisor", remote, 0.2)
        except DatabaseUnreachableError as error:
            said.append(str(error))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(remote.removeprefix("unix:"))
        listener.listen()
        dialling = threading.Thread(target=dial, daemon=True)
        dialling.start()
        dialling.join(30)
    assert len(said) == 1
    assert f"no database at {remote}: no answer within 0.2 s" in said[0]


def test_a_database_that_disconnects_during_a_read_is_reported(
    switch_config: SwitchConfig, ovs: OvsSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def time_out(*_: object) -> None:
        raise TimeoutException  # the error's text is unavailable

    monkeypatch.setattr("server.openvswitch.ovsdb.connection.Connection.start", time_out)
    with pytest.raises(DatabaseUnreachableError, match="no answer within 10 s"):
        Plumbing(switch_config)


def test_a_switch_without_a_database_in_server_toml_is_refused(switch_config: SwitchConfig) -> None:
    with pytest.raises(PlumbingError, match="add the key ovsdb"):
        Plumbing(switch_config.model_copy(update={"ovsdb": None}))


def test_the_databases_of_two_switches_are_opened_together(
    switch_config: SwitchConfig, ovs: OvsSwitch, lab_dir: Path
) -> None:
    other = OvsSwitch("snic0", lab_dir / "other", vswitchd_options=("--enable-dummy",))
    other.create()
    with contextlib.ExitStack() as undo:
        for daemon in ("ovsdb-server", "ovs-vswitchd"):
            other.launch(daemon)
            undo.callback(other.kill, daemon)
            other.await_up(daemon, lambda pid: Path(f"/proc/{pid}").exists())
        config = ServerConfig.parse(
            f"""
            [oneswitchd]
            datapath_id = "0000000000000001"
            [[switch]]
            name = "hypervisor"
            virt = "{switch_config.virt}"
            edge = "{switch_config.edge}"
            ovsdb = "{switch_config.ovsdb}"
            [[switch]]
            name = "snic0"
            virt = "unix:{other.management("virt")}"
            edge = "unix:{other.management("edge")}"
            ovsdb = "unix:{other.db_socket}"
            link = {{ hypervisor = "pcie-snic0", local = "pf0hpf" }}
            [[port]]
            number = 1
            switch = "snic0"
            interface = "pf0vf0"
            """
        )
        special = {
            "hypervisor": {"pcie-snic0": Interface("pcie-snic0", "dummy")},
            "snic0": {name: Interface(name, "dummy") for name in ("pf0hpf", "pf0vf0")},
        }
        with ServerPlumbing(config, datapath_type="dummy") as server:
            assert server.ensure(special) == ["hypervisor", "snic0"]
            assert server.ensure(special) == []
            assert server.connect([5]) == ["hypervisor", "snic0"]
            assert server.remove_virtual_ports(5) == ["hypervisor", "snic0"]
            hub, snic = server.describe()
            assert hub.find("pcie-snic0")
            assert not hub.find("pf0vf0")
            assert snic.find("pf0hpf")
            assert snic.find("pf0vf0")
            assert hub.find("edge-1")
            with pytest.raises(ConfigError, match="expected one of hypervisor, snic0"):
                server.on("snic9")
        assert "edge-1" in unixctl(other.control(), "dpif/show")
