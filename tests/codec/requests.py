"""Every message that os-ken can write, with a distinctive value in every field."""

from collections.abc import Iterator
from typing import Any

from os_ken.ofproto import nicira_ext

from tests.codec.osken import DATAPATH, OF, P

ADDRESS = "02:00:00:00:00:09"


def matches() -> Iterator[tuple[str, Any]]:
    yield "any", P.OFPMatch()
    yield "l2", P.OFPMatch(in_port=3, metadata=(5, 0xFF), eth_dst=(ADDRESS, "ff:ff:ff:00:00:00"), eth_src=ADDRESS)
    yield "vlan", P.OFPMatch(vlan_vid=0x1005, vlan_pcp=6, eth_type=0x0800, ip_dscp=10, ip_ecn=1)
    yield "vlan_masked", P.OFPMatch(vlan_vid=(0x1000, 0x1000))
    yield "tcp", P.OFPMatch(eth_type=0x0800, ipv4_src=("10.0.0.0", "255.0.0.0"), ip_proto=6, tcp_src=1, tcp_dst=(8, 8))
    yield "udp6", P.OFPMatch(eth_type=0x86DD, ip_proto=17, ipv6_src="::1", ipv6_dst=("fe80::", "ffc0::"), udp_dst=53)
    yield "sctp", P.OFPMatch(eth_type=0x0800, ip_proto=132, sctp_src=5, sctp_dst=6)
    yield "icmp", P.OFPMatch(eth_type=0x0800, ip_proto=1, icmpv4_type=8, icmpv4_code=0)
    yield "arp", P.OFPMatch(eth_type=0x0806, arp_op=1, arp_spa="10.0.0.1", arp_tpa="10.0.0.2", arp_sha=ADDRESS)
    yield (
        "nd",
        P.OFPMatch(
            eth_type=0x86DD, ip_proto=58, icmpv6_type=135, icmpv6_code=0, ipv6_nd_target="::2", ipv6_nd_sll=ADDRESS
        ),
    )
    yield "flabel", P.OFPMatch(eth_type=0x86DD, ipv6_flabel=0x12345)
    yield "mpls", P.OFPMatch(eth_type=0x8847, mpls_label=77, mpls_tc=3, mpls_bos=1)
    yield "tunnel", P.OFPMatch(tunnel_id=(7, 0xF))
    yield "nicira", P.OFPMatch(reg0=5, reg1=(6, 7), tun_ipv4_src="1.2.3.4", ct_state=(0x21, 0x21), ct_mark=9)
    yield "xregs", P.OFPMatch(xxreg1=1 << 100, pkt_mark=(1, 1), conj_id=4)


def actions() -> Iterator[tuple[str, Any]]:
    yield "output", P.OFPActionOutput(OF.OFPP_CONTROLLER, 128)
    yield "group", P.OFPActionGroup(9)
    yield "set_queue", P.OFPActionSetQueue(4)
    yield "push_vlan", P.OFPActionPushVlan(0x88A8)
    yield "pop_vlan", P.OFPActionPopVlan()
    yield "push_mpls", P.OFPActionPushMpls(0x8848)
    yield "pop_mpls", P.OFPActionPopMpls(0x86DD)
    yield "push_pbb", P.OFPActionPushPbb(0x88E7)
    yield "pop_pbb", P.OFPActionPopPbb()
    yield "set_mpls_ttl", P.OFPActionSetMplsTtl(33)
    yield "dec_mpls_ttl", P.OFPActionDecMplsTtl()
    yield "set_nw_ttl", P.OFPActionSetNwTtl(44)
    yield "dec_nw_ttl", P.OFPActionDecNwTtl()
    yield "copy_ttl_out", P.OFPActionCopyTtlOut()
    yield "copy_ttl_in", P.OFPActionCopyTtlIn()
    yield "set_vlan_vid", P.OFPActionSetField(vlan_vid=0x1007)
    yield "set_ipv4_dst", P.OFPActionSetField(ipv4_dst="10.1.2.3")
    yield "set_tunnel", P.OFPActionSetField(tunnel_id=1 << 40)
    yield "set_reg", P.OFPActionSetField(reg5=77)


def nicira_actions() -> Iterator[tuple[str, Any]]:
    bits = nicira_ext.ofs_nbits
    yield "resubmit", P.NXActionResubmit(in_port=8)
    yield "resubmit_table", P.NXActionResubmitTable(in_port=8, table_id=9)
    yield "reg_load", P.NXActionRegLoad(ofs_nbits=bits(4, 31), dst="eth_dst", value=0x112233)
    yield "reg_load2", P.NXActionRegLoad2(dst="reg3", value=5, mask=7)
    yield "reg_move", P.NXActionRegMove(src_field="eth_src", dst_field="eth_dst", n_bits=48)
    yield "note", P.NXActionNote(note=[1, 2, 3])
    yield "conjunction", P.NXActionConjunction(clause=0, n_clauses=2, id_=8)
    yield "controller", P.NXActionController(max_len=128, controller_id=1, reason=0)
    yield "controller2", P.NXActionController2(max_len=128, controller_id=1, reason=0, userdata=b"u", pause=True)
    yield "fin_timeout", P.NXActionFinTimeout(fin_idle_timeout=3, fin_hard_timeout=4)
    yield "push", P.NXActionStackPush(field="reg2", start=0, end=5)
    yield "pop", P.NXActionStackPop(field="reg2", start=0, end=5)
    yield "sample", P.NXActionSample(probability=3, collector_set_id=1, obs_domain_id=2, obs_point_id=3)
    yield "output_reg", P.NXActionOutputReg(ofs_nbits=bits(4, 31), src="reg0", max_len=1024)
    hashed = {"fields": nicira_ext.NX_HASH_FIELDS_ETH_SRC, "basis": 7, "algorithm": nicira_ext.NX_MP_ALG_HRW}
    yield "multipath", P.NXActionMultipath(max_link=5, arg=0, ofs_nbits=bits(4, 31), dst="reg2", **hashed)
    slaves = {"slave_type": nicira_ext.NXM_OF_IN_PORT, "n_slaves": 2, "slaves": [2, 3]}
    yield "bundle", P.NXActionBundle(ofs_nbits=0, dst=0, **hashed, **slaves)
    yield "bundle_load", P.NXActionBundleLoad(ofs_nbits=bits(4, 31), dst="reg0", **hashed, **slaves)
    specs = [
        P.NXFlowSpecMatch(src=0x800, dst=("eth_type_nxm", 0), n_bits=16),
        P.NXFlowSpecLoad(src=("reg5", 1), dst=("reg6", 3), n_bits=5),
        P.NXFlowSpecOutput(src=("reg7", 1), dst="", n_bits=5),
    ]
    yield "learn", P.NXActionLearn(table_id=10, specs=specs, idle_timeout=180, hard_timeout=300, priority=1, cookie=4)
    nat = P.NXActionNAT(flags=1, range_ipv4_min="10.1.12.0", range_ipv4_max="10.1.13.255")
    yield "ct", P.NXActionCT(flags=1, zone_src="", zone_ofs_nbits=5, recirc_table=4, alg=0, actions=[nat])
    yield "exit", P.NXActionExit()
    yield "dec_ttl", P.NXActionDecTtlCntIds(cnt_ids=[1, 2])


def flow_mod(match: Any, instructions: list[Any]) -> Any:
    return P.OFPFlowMod(
        DATAPATH,
        cookie=1,
        cookie_mask=2,
        table_id=3,
        command=OF.OFPFC_MODIFY_STRICT,
        idle_timeout=5,
        hard_timeout=6,
        priority=7,
        buffer_id=8,
        out_port=9,
        out_group=10,
        flags=OF.OFPFF_SEND_FLOW_REM | OF.OFPFF_NO_BYT_COUNTS,
        match=match,
        instructions=instructions,
    )


def flow_mods() -> Iterator[tuple[str, Any]]:
    apply_actions = OF.OFPIT_APPLY_ACTIONS
    for name, match in matches():
        yield f"match_{name}", flow_mod(match, [])
    for name, action in (*actions(), *nicira_actions()):
        yield f"action_{name}", flow_mod(P.OFPMatch(), [P.OFPInstructionActions(apply_actions, [action])])
    yield (
        "instructions",
        flow_mod(
            P.OFPMatch(),
            [
                P.OFPInstructionMeter(4),
                P.OFPInstructionActions(apply_actions, [P.OFPActionOutput(1, 2), P.OFPActionPopVlan()]),
                P.OFPInstructionActions(OF.OFPIT_CLEAR_ACTIONS, []),
                P.OFPInstructionActions(OF.OFPIT_WRITE_ACTIONS, [P.OFPActionGroup(3)]),
                P.OFPInstructionWriteMetadata(0x11, 0xFF),
                P.OFPInstructionGotoTable(9),
            ],
        ),
    )


def groups() -> Iterator[tuple[str, Any]]:
    output = [P.OFPActionOutput(3)]
    plain = P.OFPBucket(actions=output)
    yield "all", P.OFPGroupMod(DATAPATH, OF.OFPGC_ADD, OF.OFPGT_ALL, 5, [plain, P.OFPBucket(actions=[])])
    weighted = [P.OFPBucket(weight=7, actions=output), P.OFPBucket(weight=8, watch_port=2, actions=output)]
    yield "select", P.OFPGroupMod(DATAPATH, OF.OFPGC_MODIFY, OF.OFPGT_SELECT, 6, weighted)
    yield "indirect", P.OFPGroupMod(DATAPATH, OF.OFPGC_ADD, OF.OFPGT_INDIRECT, 7, [plain])
    watched = [P.OFPBucket(watch_port=1, actions=output), P.OFPBucket(watch_group=5, actions=[])]
    yield "failover", P.OFPGroupMod(DATAPATH, OF.OFPGC_ADD, OF.OFPGT_FF, 8, watched)
    yield "delete", P.OFPGroupMod(DATAPATH, OF.OFPGC_DELETE, OF.OFPGT_ALL, OF.OFPG_ALL, [])


def table_features() -> Any:
    properties = [
        P.OFPTableFeaturePropInstructions(OF.OFPTFPT_INSTRUCTIONS, instruction_ids=[P.OFPInstructionId(1)]),
        P.OFPTableFeaturePropNextTables(OF.OFPTFPT_NEXT_TABLES, table_ids=[1, 2]),
        P.OFPTableFeaturePropActions(OF.OFPTFPT_WRITE_ACTIONS, action_ids=[P.OFPActionId(0)]),
        P.OFPTableFeaturePropOxm(OF.OFPTFPT_MATCH, oxm_ids=[P.OFPOxmId("in_port", hasmask=False)]),
    ]
    return P.OFPTableFeaturesStats(
        table_id=1,
        name=b"one",
        metadata_match=2,
        metadata_write=3,
        config=0,
        max_entries=9,
        properties=properties,
    )


def multiparts() -> Iterator[tuple[str, Any]]:
    flow = {"table_id": 1, "out_port": 2, "out_group": 3, "cookie": 4, "cookie_mask": 5}
    match = P.OFPMatch(in_port=1)
    yield "desc", P.OFPDescStatsRequest(DATAPATH, 0)
    yield "flow", P.OFPFlowStatsRequest(DATAPATH, flags=0, match=match, **flow)
    yield "aggregate", P.OFPAggregateStatsRequest(DATAPATH, 0, 1, 2, 3, 4, 5, match)
    yield "table", P.OFPTableStatsRequest(DATAPATH, 0)
    yield "port", P.OFPPortStatsRequest(DATAPATH, 0, 7)
    yield "queue", P.OFPQueueStatsRequest(DATAPATH, 0, 7, 8)
    yield "group", P.OFPGroupStatsRequest(DATAPATH, 0, 9)
    yield "group_desc", P.OFPGroupDescStatsRequest(DATAPATH, 0)
    yield "group_features", P.OFPGroupFeaturesStatsRequest(DATAPATH, 0)
    yield "meter", P.OFPMeterStatsRequest(DATAPATH, 0, 10)
    yield "meter_config", P.OFPMeterConfigStatsRequest(DATAPATH, 0, 11)
    yield "meter_features", P.OFPMeterFeaturesStatsRequest(DATAPATH, 0)
    yield "table_features", P.OFPTableFeaturesStatsRequest(DATAPATH, 0)
    yield "table_features_more", P.OFPTableFeaturesStatsRequest(DATAPATH, OF.OFPMPF_REQ_MORE, [table_features()])
    yield "port_desc", P.OFPPortDescStatsRequest(DATAPATH, 0)
    yield "experimenter", P.OFPExperimenterStatsRequest(DATAPATH, 0, 0x2320, 3, b"\1\2\3\4")


def session() -> Iterator[tuple[str, Any]]:
    yield "hello", P.OFPHello(DATAPATH)
    yield "error", P.OFPErrorMsg(DATAPATH, 5, 3, b"offending")
    yield "error_experimenter", P.OFPErrorMsg(DATAPATH, 0xFFFF, None, b"offending", experimenter=0x2320, exp_type=15)
    yield "echo_request", P.OFPEchoRequest(DATAPATH, b"are you there")
    yield "echo_reply", P.OFPEchoReply(DATAPATH, b"here I am")
    yield "experimenter", P.OFPExperimenter(DATAPATH, 0x2320, 18, b"body")
    yield "features", P.OFPFeaturesRequest(DATAPATH)
    yield "get_config", P.OFPGetConfigRequest(DATAPATH)
    yield "set_config", P.OFPSetConfig(DATAPATH, OF.OFPC_FRAG_DROP, 256)
    yield (
        "packet_out",
        P.OFPPacketOut(
            DATAPATH, OF.OFP_NO_BUFFER, OF.OFPP_CONTROLLER, [P.OFPActionOutput(1), P.OFPActionGroup(2)], b"frame" * 20
        ),
    )
    yield "packet_out_buffered", P.OFPPacketOut(DATAPATH, 77, 3, [])
    yield "port_mod", P.OFPPortMod(DATAPATH, 4, ADDRESS, OF.OFPPC_NO_FWD, OF.OFPPC_NO_FWD | OF.OFPPC_PORT_DOWN, 0x40)
    yield "table_mod", P.OFPTableMod(DATAPATH, 3, 1)
    yield "barrier", P.OFPBarrierRequest(DATAPATH)
    yield "queue_get_config", P.OFPQueueGetConfigRequest(DATAPATH, OF.OFPP_ANY)
    yield "role", P.OFPRoleRequest(DATAPATH, OF.OFPCR_ROLE_SLAVE, 1 << 60)
    yield "get_async", P.OFPGetAsyncRequest(DATAPATH)
    yield "set_async", P.OFPSetAsync(DATAPATH, [1, 2], [3, 4], [5, 6])
    bands = [P.OFPMeterBandDrop(100, 10), P.OFPMeterBandDscpRemark(200, 20, 1)]
    yield "meter", P.OFPMeterMod(DATAPATH, OF.OFPMC_MODIFY, OF.OFPMF_PKTPS | OF.OFPMF_STATS, 12, bands)
    yield "meter_delete", P.OFPMeterMod(DATAPATH, OF.OFPMC_DELETE, 0, OF.OFPM_ALL, [])


def messages() -> dict[str, Any]:
    """Return all messages by name."""
    kinds = {"flow": flow_mods, "group": groups, "multipart": multiparts, "session": session}
    return {f"{kind}-{name}": message for kind, make in kinds.items() for name, message in make()}
