"""Frames of several segments through the load balancer, between hosts whose interfaces have all offloads."""

from pathlib import Path

import pytest

from lab.web_path.balancers import l7lb
from lab.web_path.path import ORIGINS, PORT, WebPath
from nfagent.control import Control
from tests.l7lb.conftest import Transfers, origin
from tests.l7lb.transfers import Plan

pytestmark = pytest.mark.namespaces


def test_long_bodies_pass_in_frames_of_several_segments(directory: Path) -> None:
    with WebPath(offloads=True) as path, origin(path, directory), l7lb(path, directory, ORIGINS):
        plan = Plan(path.target, PORT, 7, 60, connections=6, largest=3_000_000)
        report = Transfers(path).execute(plan)
        assert (report.requests, report.corrupt, report.hung, report.failed) == (60, 0, 0, 0), report
        ports = Control(directory / "l7lb.sock").ask("status")["ports"]
    assert [each["backend"] for each in ports] == ["AF_PACKET", "AF_PACKET"]
    assert all(each["receive_merged"] > 100 for each in ports)
