//! Messages of OpenFlow 1.0: those of 1.3 that say the same, and back; no input causes a panic.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/messages.rs"]
mod messages;

use messages::message;
use openflow13::openflow10::{self, Formats, Modify, PacketInFormat, Request, StatsForm};
use openflow13::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// A frame of version 1.0.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (8 + body.len()) as u16;
    let mut frame = vec![openflow10::VERSION, kind];
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0, 7]);
    frame.extend(body);
    frame
}

/// `ofp_match` on TCP from 10.0.0.0/8 on port 1 with VLAN 5.
fn tcp_match() -> Vec<u8> {
    let fixed: u32 = 1 | 2 | 1 << 4 | 1 << 5 | 0x3f << 8 | 0x3f << 14;
    let open = 0x003f_ffff & !fixed | 24 << 8 | 32 << 14;
    let mut bytes = open.to_be_bytes().to_vec();
    bytes.extend([0, 1]);
    bytes.extend([0; 12]);
    bytes.extend([
        0, 5, 0, 0, 8, 0, 0, 6, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ]);
    assert_eq!(bytes.len(), 40);
    bytes
}

/// A flow-mod with `command`, cookie 9 and priority 3.
fn flow_mod(command: u16, actions: &[u8]) -> Vec<u8> {
    let mut body = tcp_match();
    body.extend(9u64.to_be_bytes());
    body.extend(command.to_be_bytes());
    body.extend([0, 0, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
    body.extend(actions);
    frame(openflow10::kind::FLOW_MOD, &body)
}

fn request(frame: &[u8]) -> Request {
    openflow10::decode(frame, &Formats::default()).unwrap().0
}

#[test]
fn an_add_goes_to_table_0_and_resets_counters() {
    let Request::Message(Message::FlowMod(added)) = request(&flow_mod(0, &[])) else {
        panic!()
    };
    assert_eq!((added.table_id, added.cookie, added.priority), (0, 9, 3));
    assert_eq!(added.flags, FlowMod::RESET_COUNTS);
    assert_eq!(
        added.matching.to_string(),
        "in_port=1,eth_type=0x800,vlan_vid=0x1005,nw_proto=6,nw_src=10.0.0.0/255.0.0.0"
    );
    let Request::Message(Message::FlowMod(deleted)) = request(&flow_mod(3, &[])) else {
        panic!()
    };
    assert_eq!((deleted.table_id, deleted.cookie_mask), (ALL_TABLES, 0));
}

#[test]
fn a_match_that_only_lacks_prerequisites_is_on_ethernet() {
    let open_all = 0x003f_ffffu32;
    let tcp = 1u32 << 5;
    for (open, fields) in [
        (open_all, "any packet"),
        (open_all & !tcp, "oxm(0x8000,44)=0x0"),
        (open_all & !(tcp | 1), "in_port=1,oxm(0x8000,44)=0x0"),
        (open_all & !(tcp | 4), "eth_src=00:00:00:00:00:00"),
    ] {
        let mut message = flow_mod(0, &[]);
        message[8..12].copy_from_slice(&open.to_be_bytes());
        let Request::Message(Message::FlowMod(added)) = request(&message) else {
            panic!()
        };
        assert_eq!(added.matching.to_string(), fields);
    }
}

#[test]
fn ipv6_has_its_protocol_its_class_and_its_ports() {
    let (dl_type, nw_proto, tp_src, nw_tos) = (1u32 << 4, 1u32 << 5, 1u32 << 6, 1u32 << 21);
    for (named, protocol, fields) in [
        (dl_type | nw_proto | tp_src, 6, "nw_proto=6,tcp_src=7"),
        (dl_type | nw_proto | tp_src, 58, "nw_proto=58,icmpv6_type=7"),
        (dl_type | nw_proto | tp_src, 1, "nw_proto=1"),
        (dl_type | nw_tos, 0, "ip_dscp=10"),
    ] {
        let mut message = flow_mod(0, &[]);
        message[8..12].copy_from_slice(&(0x003f_ffff & !named).to_be_bytes());
        message[30..32].copy_from_slice(&0x86ddu16.to_be_bytes());
        (message[32], message[33]) = (40, protocol);
        message[44..46].copy_from_slice(&7u16.to_be_bytes());
        let Request::Message(Message::FlowMod(added)) = request(&message) else {
            panic!()
        };
        let expected = format!("eth_type=0x86dd,{fields}");
        assert_eq!(added.matching.to_string(), expected);
    }
}

/// Nicira's ADD with a match.
fn nicira_flow_mod(matching: &[u8]) -> Vec<u8> {
    let mut body = [0, 0, 0x23, 0x20, 0, 0, 0, 13].to_vec();
    body.extend(9u64.to_be_bytes());
    body.extend([0, 3, 0, 0, 0, 0, 0, 3, 255, 255, 255, 255, 255, 255, 0, 0]);
    body.extend((matching.len() as u16).to_be_bytes());
    body.extend([0; 6]);
    body.extend(matching);
    body.extend(vec![0; matching.len().next_multiple_of(8) - matching.len()]);
    frame(4, &body)
}

#[test]
fn a_cookie_in_a_match_fits_its_mask_and_is_there_once() {
    let cookie = |value: u64, mask: u64| {
        let header = [0, 1, 30 << 1 | 1, 16].to_vec();
        [
            header,
            value.to_be_bytes().into(),
            mask.to_be_bytes().into(),
        ]
        .concat()
    };
    let told =
        |matching: &[u8]| openflow10::decode(&nicira_flow_mod(matching), &Formats::default());
    let Request::Message(Message::FlowMod(deleted)) = told(&cookie(2, 3)).unwrap().0 else {
        panic!()
    };
    assert_eq!((deleted.cookie, deleted.cookie_mask), (2, 3));
    let refused = |matching: &[u8]| told(matching).unwrap_err().error;
    assert_eq!(refused(&cookie(4, 3)), ErrorCode::BAD_MATCH_BAD_WILDCARDS);
    let twice = [cookie(2, 3), cookie(2, 3)].concat();
    assert_eq!(refused(&twice), ErrorCode::BAD_MATCH_DUP_FIELD);
}

#[test]
fn replies_of_a_controller_are_checked_for_their_lengths_first() {
    for (kind, length) in [(6u8, 24), (8, 4), (11, 80), (12, 56), (19, 0)] {
        let refused = |length| {
            let frame = frame(kind, &vec![0; length]);
            let decoded = openflow10::decode(&frame, &Formats::default());
            decoded.unwrap_err().error
        };
        let expected = ErrorCode::BAD_REQUEST_BAD_TYPE;
        assert_eq!(refused(length), expected, "type {kind}");
        if kind != 6 {
            let expected = ErrorCode::BAD_REQUEST_BAD_LEN;
            assert_eq!(refused(length + 4), expected, "type {kind}");
        }
    }
}

#[test]
fn a_configuration_may_ask_for_packets_whose_ttl_expires() {
    let told = |flags: u8| openflow10::decode(&frame(9, &[0, flags, 0, 9]), &Formats::default());
    let Request::Message(Message::SetConfig(config)) = told(4).unwrap().0 else {
        panic!()
    };
    assert_eq!(config.flags, SwitchConfig::INVALID_TTL_TO_CONTROLLER);
    let expected = ErrorCode::SWITCH_CONFIG_FAILED_BAD_FLAGS;
    assert_eq!(told(8).unwrap_err().error, expected);
}

#[test]
fn later_versions_see_three_actions_for_enqueue() {
    let enqueue = [0, 11, 0, 16, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3];
    let Request::Message(Message::FlowMod(rule)) = request(&flow_mod(0, &enqueue)) else {
        panic!()
    };
    let Some(Instruction::ApplyActions(list)) = rule.instructions.iter().next() else {
        panic!()
    };
    let actions: Vec<Action<'_>> = list.iter().map(|item| item.action).collect();
    let output = Action::Output {
        port: 2,
        max_len: u16::MAX,
    };
    assert_eq!(actions[..2], [Action::SetQueue(3), output]);
    assert!(matches!(actions[2..], [Action::Nicira { subtype: 5, .. }]));
}

#[test]
fn a_modification_has_a_new_cookie_and_all_tables() {
    let Request::Modify(Modify {
        flow_mod,
        new_cookie,
    }) = request(&flow_mod(2, &[0, 0, 0, 8, 0, 2, 0, 0]))
    else {
        panic!()
    };
    assert_eq!(flow_mod.command, FlowModCommand::ModifyStrict);
    assert_eq!((flow_mod.table_id, new_cookie), (ALL_TABLES, Some(9)));
    let formats = Formats {
        table_id: true,
        ..Formats::default()
    };
    let named = openflow10::decode(&self::flow_mod(0x0501, &[]), &formats).unwrap();
    assert!(matches!(named.0, Request::Modify(m) if m.flow_mod.table_id == 5));
}

/// A reply with the statistics of a rule.
fn rule_shown(rule: &FlowMod) -> Vec<u8> {
    let stats = FlowStats {
        table_id: 0,
        duration_sec: 1,
        duration_nsec: 2,
        priority: rule.priority,
        idle_timeout: 0,
        hard_timeout: 0,
        flags: 0,
        importance: 0,
        idle_age: 0,
        cookie: rule.cookie,
        packet_count: 3,
        byte_count: 4,
        matching: rule.matching.clone(),
        instructions: rule.instructions.clone(),
    };
    let reply = Message::MultipartReply(Multipart::last(MultipartReply::Flow(vec![stats])));
    let frames = openflow10::encode(7, &reply, &Formats::default(), StatsForm::Standard);
    let [told] = &frames[..] else { panic!() };
    told.clone()
}

/// Actions of OpenFlow 1.0 that survive both translations.
#[test]
fn actions_come_back_as_they_were() {
    let vendor = |subtype: u8, body: &[u8]| {
        let mut action = vec![0xff, 0xff, 0, 0, 0, 0, 0x23, 0x20, 0, subtype];
        action.extend(body);
        action[3] = action.len() as u8;
        action
    };
    let controller = [0, 0, 0, 8, 0xff, 0xfd, 0, 100];
    for action in [
        controller.to_vec(),
        vec![0, 0, 0, 8, 0, 2, 0, 100],
        vec![0, 1, 0, 8, 0, 5, 0, 0],
        vec![0, 2, 0, 8, 3, 0, 0, 0],
        vec![0, 3, 0, 8, 0, 0, 0, 0],
        vec![0, 11, 0, 16, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3],
        vendor(4, &[0, 0, 0, 0, 0, 3]),
        vendor(14, &[0xff, 0xf8, 4, 0, 0, 0]),
        vendor(18, &[0; 6]),
        vendor(23, &[0x88, 0x47, 0, 0, 0, 0]),
        vendor(40, &[0, 0, 0, 0, 0, 7]),
        [vendor(42, &[0; 6]), controller.to_vec()].concat(),
    ] {
        let mut action = action;
        if action.len() > 24 - 1 {
            action[3] = action.len() as u8; // a clone with what it contains
        }
        let Request::Message(Message::FlowMod(rule)) = request(&flow_mod(0, &action)) else {
            panic!("{action:?}")
        };
        let told = rule_shown(&rule);
        assert_eq!(told[16..56], tcp_match(), "{action:?}");
        assert_eq!(told[12 + 88..], action);
    }
}

#[test]
fn only_what_was_enqueued_is_shown_so() {
    let [set_queue, pop_queue] = [4, 5].map(|subtype| {
        [
            255, 255, 0, 16, 0, 0, 0x23, 0x20, 0, subtype, 0, 0, 0, 0, 0, 3,
        ]
    });
    let output = [0, 0, 0, 8, 0, 2, 0, 0];
    let queued = [&set_queue[..], &output, &pop_queue].concat();
    let Request::Message(Message::FlowMod(rule)) = request(&flow_mod(0, &queued)) else {
        panic!()
    };
    let shown = rule_shown(&rule);
    assert_eq!(shown.len(), 12 + 88 + queued.len());
    assert_eq!(shown[12 + 88 + 16..12 + 88 + 24], output);
}

#[test]
fn emergencies_and_bits_that_switches_cannot_be_told_are_refused() {
    let mut emergency = flow_mod(0, &[]);
    emergency[71] = 4;
    let refused = |frame: &[u8]| {
        openflow10::decode(frame, &Formats::default())
            .unwrap_err()
            .error
    };
    assert_eq!(refused(&emergency), ErrorCode::FLOW_MOD_FAILED_TABLE_FULL);
    let port_mod = |bits: u8| {
        let body = [
            0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, bits, 0, 0, 0, bits, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        frame(openflow10::kind::PORT_MOD, &body)
    };
    for bit in [config::NO_STP, config::NO_FLOOD, config::NO_RECV_STP] {
        let Request::Message(Message::PortMod(kept)) = request(&port_mod(bit as u8)) else {
            panic!()
        };
        assert_eq!((kept.config, kept.mask), (bit, bit));
    }
}

#[test]
fn a_long_reply_is_split_between_rules() {
    let rule = |cookie| FlowStats {
        table_id: 0,
        duration_sec: 0,
        duration_nsec: 0,
        priority: 1,
        idle_timeout: 0,
        hard_timeout: 0,
        flags: 0,
        importance: 0,
        idle_age: 0,
        cookie,
        packet_count: 0,
        byte_count: 0,
        matching: Match::any(),
        instructions: Instructions::none(),
    };
    let body = MultipartReply::Flow((0..1_000).map(rule).collect());
    let reply = Message::MultipartReply(Multipart::last(body));
    let frames = openflow10::encode(7, &reply, &Formats::default(), StatsForm::Standard);
    let more: Vec<u8> = frames.iter().map(|frame| frame[11]).collect();
    assert_eq!(more, [1, 0]);
    let entries: usize = frames.iter().map(|frame| frame.len() - 12).sum();
    assert_eq!(entries, 1_000 * 88);
}

#[test]
fn packets_that_meet_no_rule_are_told_from_others() {
    let packet = |reason| PacketIn {
        buffer_id: NO_BUFFER,
        total_len: 60,
        reason,
        table_id: 3,
        cookie: u64::MAX,
        matching: Match::any().with_in_port(4),
        data: vec![7; 14].into(),
    };
    let sent = |version, reason| {
        let format = PacketInFormat::Nicira2;
        openflow10::encode_packet_in(version, &packet(reason), format).unwrap()
    };
    let missed = packet(PacketIn::IMPLICIT_MISS);
    let decoded = openflow10::decode_miss(&sent(1, PacketIn::IMPLICIT_MISS));
    assert_eq!(decoded.unwrap(), Some(missed));
    for reason in [PacketIn::NO_MATCH, PacketIn::ACTION, PacketIn::INVALID_TTL] {
        // In OpenFlow 1.0, a rule for misses is like any other.
        assert_eq!(openflow10::decode_miss(&sent(1, reason)), Ok(None));
    }
    assert_eq!(openflow10::decode_miss(&frame(3, &[])), Ok(None));
    let error = encode_error(7, ErrorCode::BAD_REQUEST_EPERM, &frame(4, &[]));
    assert!(openflow10::decode_miss(&error).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    /// Checks that translated requests can be encoded, and that errors can be read.
    #[test]
    fn arbitrary_requests_do_not_panic(kind in 0u8..32, body in vec(any::<u8>(), 0..200), table_id: bool) {
        let frame = frame(kind, &body);
        let formats = Formats { table_id, ..Formats::default() };
        match openflow10::decode(&frame, &formats) {
            Ok((Request::Message(message), _)) => {
                prop_assert!(encode(7, &message).is_ok());
            }
            Ok(_) => {}
            Err(refusal) => {
                let error = encode_error(7, refusal.error, &frame);
                prop_assert_eq!(frame_length(&error).unwrap(), Some(error.len()));
                prop_assert_eq!(error[0], openflow10::VERSION);
            }
        }
    }

    #[test]
    fn arbitrary_packets_without_a_rule_do_not_panic(body in vec(any::<u8>(), 0..100)) {
        let frame = frame(4, &[&[0, 0, 0x23, 0x20, 0, 0, 0, 30][..], &body].concat());
        let _ = openflow10::decode_miss(&frame);
    }

    #[test]
    fn arbitrary_flow_mods_do_not_panic(body in vec(any::<u8>(), 24..200), nicira: bool) {
        let frame = match nicira {
            false => flow_mod(0, &body),
            true => frame(4, &[&[0, 0, 0x23, 0x20, 0, 0, 0, 13][..], &body].concat()),
        };
        let _ = openflow10::decode(&frame, &Formats::default());
    }

    /// Every message of 1.3 becomes whole messages of 1.0, or none.
    #[test]
    fn messages_become_whole_messages(message in message(), nxm: bool, second: bool) {
        let formats = Formats {
            nxm,
            packet_in: if second { PacketInFormat::Nicira2 } else { PacketInFormat::Nicira },
            ..Formats::default()
        };
        let form = if nxm { StatsForm::Nicira } else { StatsForm::Standard };
        for frame in openflow10::encode(7, &message, &formats, form) {
            prop_assert_eq!(frame[0], openflow10::VERSION);
            prop_assert_eq!(frame_length(&frame).unwrap(), Some(frame.len()));
        }
    }
}
