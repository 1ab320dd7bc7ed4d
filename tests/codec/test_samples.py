"""Messages of the Rust library's builders, as Open vSwitch prints them."""

from typing import Any

import pytest

from tests.codec.codec import Codec
from tests.codec.osken import assert_same, read
from tests.unoctl.dummy_ovs import run

TRANSIT = "push_vlan:0x8100,set_field:4101->vlan_vid,output:2"
DELIVER = "pop_vlan,IN_PORT,group:9"
RULE = "cookie:0x1234 idle:5 hard:60 send_flow_rem actions="
PORT = """addr:02:00:00:00:00:07
     config:     NO_FWD
     state:      LIVE
     speed: 0 Mbps now, 0 Mbps max"""

PRINTED = {
    "transit": f"OFPT_FLOW_MOD: ADD table:3 priority=100,in_port=7 {RULE}{TRANSIT}",
    "deliver": f"OFPT_FLOW_MOD: ADD table:3 priority=100,in_port=7,dl_vlan=5 {RULE}{DELIVER}",
    "drop": f"OFPT_FLOW_MOD: ADD table:3 priority=100 {RULE}drop",
    "group": "OFPT_GROUP_MOD:\n ADD group_id=9,type=select,"
    f"bucket=weight:3,actions={TRANSIT},bucket=weight:4,actions={DELIVER}",
    "meter": "OFPT_METER_MOD: ADD meter=6 kbps burst bands=\ntype=drop rate=1000 burst_size=20",
    "features": "OFPT_FEATURES_REPLY: dpid:0000000000000abc\nn_tables:254, n_buffers:0\n"
    "capabilities: FLOW_STATS TABLE_STATS PORT_STATS GROUP_STATS QUEUE_STATS",
    "flow_removed": "OFPT_FLOW_REMOVED: priority=100,in_port=7,dl_vlan=5 reason=idle table_id=3 cookie:0x1234 "
    "duration10.500s idle5 hard60 pkts77 bytes8888",
    "port_status": f"OFPT_PORT_STATUS: MOD: 4(vm4): {PORT}",
    "port_desc": f"OFPST_PORT_DESC reply:\n 4(vm4): {PORT}\n 5(vm5): {PORT}",
    "hello": "OFPT_HELLO:\n version bitmap: 0x04",
    "bundle_open": "ONFT_BUNDLE_CONTROL:\n bundle_id=0x8 type=OPEN_REQUEST flags=atomic ordered",
    "bundle_add": "ONFT_BUNDLE_ADD_MESSAGE:\n bundle_id=0x8 flags=atomic ordered\n"
    f"OFPT_FLOW_MOD: ADD table:3 priority=100 {RULE}{TRANSIT}",
    "bundle_commit": "ONFT_BUNDLE_CONTROL:\n bundle_id=0x8 type=COMMIT_REQUEST flags=atomic ordered",
    "bundle_discard": "ONFT_BUNDLE_CONTROL:\n bundle_id=0x8 type=DISCARD_REQUEST flags=atomic ordered",
    "error": f"OFPT_ERROR: OFPFMFC_OVERLAP\nOFPT_FLOW_MOD: ADD table:3 priority=100 {RULE}{TRANSIT}",
    "extension_error": f"OFPT_ERROR: OFPBIC_DUP_INST\nOFPT_FLOW_MOD: ADD table:3 priority=100 {RULE}{TRANSIT}",
}


def printed(frame: str) -> str:
    return run("ovs-ofctl", "ofp-print", frame).strip().replace(" (OF1.3) (xid=0x1)", "")


@pytest.fixture(scope="module")
def samples(codec: Codec) -> dict[str, Any]:
    return codec.ask("samples")


def test_every_builder_has_a_sample(samples: dict[str, Any]) -> None:
    assert set(samples) == set(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_open_vswitch_prints_each_sample_as_expected(codec: Codec, samples: dict[str, Any], name: str) -> None:
    assert printed(samples[name]) == PRINTED[name]
    codec.round_trip(bytes.fromhex(samples[name]))


REPLIES = {
    "queue",
    "port",
    "table",
    "group",
    "meter",
    "flow",
    "aggregate",
    "group_features",
    "async",
    "config",
    "role",
}


def test_os_ken_reads_the_same_numbers(codec: Codec) -> None:
    replies = codec.ask("replies")
    assert set(replies) == REPLIES
    for text in replies.values():
        frame = bytes.fromhex(text)
        assert_same(codec.round_trip(frame), read(frame))


# How Open vSwitch begins the names of errors, and those that it names unlike the specification.
PREFIXES = {
    "HELLO_FAILED": "OFPHFC",
    "BAD_REQUEST": "OFPBRC",
    "BAD_ACTION": "OFPBAC",
    "BAD_INSTRUCTION": "OFPBIC",
    "BAD_MATCH": "OFPBMC",
    "FLOW_MOD_FAILED": "OFPFMFC",
    "GROUP_MOD_FAILED": "OFPGMFC",
    "PORT_MOD_FAILED": "OFPPMFC",
    "TABLE_MOD_FAILED": "OFPTMFC",
    "QUEUE_OP_FAILED": "OFPQOFC",
    "SWITCH_CONFIG_FAILED": "OFPSCFC",
    "ROLE_REQUEST_FAILED": "OFPRRFC",
    "METER_MOD_FAILED": "OFPMMFC",
    "TABLE_FEATURES_FAILED": "OFPTFFC",
}
RENAMED = {
    "BAD_REQUEST_BAD_MULTIPART": "OFPBRC_BAD_STAT",
    "BAD_REQUEST_BAD_EXPERIMENTER": "OFPBRC_BAD_VENDOR",
    "BAD_REQUEST_BAD_EXP_TYPE": "OFPBRC_BAD_SUBTYPE",
    "BAD_REQUEST_IS_SLAVE": "OFPBRC_IS_SECONDARY",
    "BAD_ACTION_BAD_EXPERIMENTER": "OFPBAC_BAD_VENDOR",
    "BAD_ACTION_BAD_EXP_TYPE": "OFPBAC_BAD_VENDOR_TYPE",
    "TABLE_FEATURES_FAILED_BAD_TYPE": "OFPBPC_BAD_TYPE",
    "TABLE_FEATURES_FAILED_BAD_LEN": "OFPBPC_BAD_LEN",
    "TABLE_FEATURES_FAILED_BAD_ARGUMENT": "OFPBPC_BAD_VALUE",
}


# OpenFlow 1.3 lacks these errors of 1.5.
LATER = {"BAD_REQUEST_PIPELINE_FIELDS_ONLY", "GROUP_MOD_FAILED_UNKNOWN_BUCKET", "GROUP_MOD_FAILED_BUCKET_EXISTS"}


def test_errors_have_the_names_of_open_vswitch(codec: Codec) -> None:
    names = set()
    errors = codec.ask("errors")
    for name, frame in errors.items():
        theirs = printed(frame).split(" ")[1].split("\n")[0]
        if name in LATER:
            assert theirs == "NXBRC_UNENCODABLE_ERROR"
            continue
        names.add(theirs)
        prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), None)
        if prefix:
            assert theirs == RENAMED.get(name, name.replace(prefix, PREFIXES[prefix], 1))
        else:
            # Extension errors: the last word at least.
            assert theirs.split("_")[-1] == name.split("_")[-1], (name, theirs)
    assert len(names) == len(errors) - len(LATER)
