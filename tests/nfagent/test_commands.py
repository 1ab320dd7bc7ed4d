"""Command lines of kinds."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nfagent.catalog import nf_kinds
from nfagent.errors import LaunchError
from nfagent.launch.commands import Places, command_line
from nfagent.model import Instance, Kind
from tests.nfagent import samples

KIND = Kind("l4lb", "", True, (1, 2), ("nf", "{ports}", "{offload}"))
PLACES = Places("/c", "/s", ("eth0",), "/run/oneswitch/offload.sock")
ASKED = ["--offload", "/run/oneswitch/offload.sock", "--offload-port", "1007", "--offload-owner", "nfagent/acme/lb1"]


def _instance(*ports: int) -> Instance:
    return samples.instance("lb1", ports=tuple(samples.port(number) for number in ports))


def test_a_function_with_one_port_is_told_of_the_offload_socket() -> None:
    assert command_line(KIND, _instance(1007), None, PLACES) == ["nf", "--port", "eth0", *ASKED]


def test_a_function_that_waits_for_a_migration_is_told_too() -> None:
    words = command_line(KIND, _instance(1007), None, PLACES, hold=True)
    assert words == ["nf", "--port", "eth0", *ASKED, "--hold"]


@pytest.mark.parametrize("ports", [(), (1007, 1008)])
def test_without_exactly_one_port_there_is_no_offload(ports: tuple[int, ...]) -> None:
    places = replace(PLACES, interfaces=tuple(f"eth{index}" for index in range(len(ports))))
    assert "--offload" not in command_line(KIND, _instance(*ports), None, places)


def test_each_port_of_a_function_with_two_has_its_number() -> None:
    kind = replace(KIND, command=("nf", "{offload_ports}"))
    words = command_line(kind, _instance(1007, 1008), None, PLACES)
    assert words == ["nf", *ASKED[:4], "--offload-port", "1008", *ASKED[4:]]


def test_without_the_socket_there_is_no_offload() -> None:
    words = command_line(KIND, _instance(1007), None, replace(PLACES, offload=None))
    assert words == ["nf", "--port", "eth0"]


def test_an_unknown_placeholder_names_the_known_ones() -> None:
    with pytest.raises(LaunchError, match=r"\{offlaod\}.*\{ports\}, \{offload\}"):
        command_line(replace(KIND, command=("nf", "{offlaod}")), _instance(1007), None, PLACES)


def test_only_kinds_that_offload_get_the_word(directory: Path) -> None:
    program = directory / "nf"
    offloads = {"l4lb": "{offload}", "firewall": "{offload_ports}", "forward": None}
    ports = {"l4lb": 1, "firewall": 2, "forward": 0}
    listed = [{"kind": name, "summary": "", "offloaded_ports": each} for name, each in ports.items()]
    program.write_text(f"#!/bin/sh\necho '{json.dumps(listed)}'\n")
    program.chmod(0o755)
    kinds = {kind.name: kind.command for kind in nf_kinds(str(program))}
    found = {name: next((word for word in words if "offload" in word), None) for name, words in kinds.items()}
    assert found == offloads
