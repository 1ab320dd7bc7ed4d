//! Malformed requests and Open vSwitch's errors for them. tests/codec/ compares
//! with a running Open vSwitch at random.
#![allow(clippy::unwrap_used, clippy::panic)]

use openflow13::*;

fn flow_mod() -> FlowMod {
    FlowMod {
        instructions: Instructions::none(),
        ..FlowMod::new(FlowModCommand::Add, 0, 1, Match::any())
    }
}

/// Builds the frame of an empty flow-mod, with these bytes in place of match
/// and instructions.
fn frame(tail: &[u8]) -> Vec<u8> {
    let mut frame = encode(0, &Message::FlowMod(flow_mod())).unwrap();
    frame.truncate(48);
    frame.extend(tail);
    let length = (frame.len() as u16).to_be_bytes();
    frame[2..4].copy_from_slice(&length);
    frame
}

fn with_oxm(oxm: &[u8]) -> Vec<u8> {
    let mut tail = vec![0, 1];
    tail.extend((4 + oxm.len() as u16).to_be_bytes());
    tail.extend(oxm);
    tail.resize(tail.len().div_ceil(8) * 8, 0);
    frame(&tail)
}

fn with_instructions(bytes: &[u8]) -> Vec<u8> {
    frame(&[&[0, 1, 0, 4, 0, 0, 0, 0], bytes].concat())
}

fn with_action(bytes: &[u8]) -> Vec<u8> {
    let mut instruction = vec![0, 4];
    instruction.extend((8 + bytes.len() as u16).to_be_bytes());
    instruction.extend([0; 4]);
    instruction.extend(bytes);
    with_instructions(&instruction)
}

/// Reads a case, "hexadecimal bytes: the expected error", or without an error for bytes that are accepted.
#[track_caller]
fn check(frame: impl Fn(&[u8]) -> Vec<u8>, cases: &[&str]) {
    for case in cases {
        let (bytes, expected) = case.split_once(": ").unwrap_or((case, "accepted"));
        let digits: String = bytes.split(' ').collect();
        let pairs = digits.as_bytes().chunks(2);
        let bytes = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16));
        let frame = frame(&bytes.collect::<Result<Vec<u8>, _>>().unwrap());
        let found =
            decode(&frame).map_or_else(|refusal| refusal.error.to_string(), |_| "accepted".into());
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn headers() {
    check(
        <[u8]>::to_vec,
        &[
            "04020008 000000: BAD_REQUEST_BAD_LEN",
            "04020009 00000000: BAD_REQUEST_BAD_LEN",
            "01020008 00000000: BAD_REQUEST_BAD_VERSION",
            "041e0008 00000000: BAD_REQUEST_BAD_TYPE",
            "04140009 00000000 00: BAD_REQUEST_BAD_LEN",
            "06000008 00000000",
            // Multipart requests: a description, no such kind, aggregate without its body.
            "04120010 00000000 0000000000000000",
            "04120010 00000000 000e000000000000: BAD_REQUEST_BAD_MULTIPART",
            "04120010 00000000 0004000000000000: BAD_REQUEST_BAD_LEN",
        ],
    );
}

#[test]
fn matches() {
    check(
        frame,
        &[
            ": BAD_MATCH_BAD_LEN",
            "00010003 00000000: BAD_MATCH_BAD_LEN",
            "0001000c 00000000: BAD_MATCH_BAD_LEN",
            "00020004 00000000: BAD_MATCH_BAD_TYPE",
            "00010004 00000000 00: BAD_REQUEST_BAD_LEN",
        ],
    );
    check(
        with_oxm,
        &[
            // in_port: truncated, too short, unknown class, masked in part.
            "80000004 000000: BAD_MATCH_BAD_LEN",
            "80000002 0001: BAD_MATCH_BAD_FIELD",
            "90000004 00000001: BAD_MATCH_BAD_FIELD",
            "80000108 00000001 00000001: BAD_MATCH_BAD_MASK",
            "80000108 00000002 00000001: BAD_MATCH_BAD_WILDCARDS",
            "80000108 00000001 ffffffff",
            // Ports between 0xff00 and OFPP_MAX do not exist.
            "80000004 0000ff00: BAD_MATCH_BAD_VALUE",
            // The 16-bit spelling is the same field.
            "80000004 00000001 00000002 0001: BAD_MATCH_DUP_FIELD",
            // reg0 and the extended register that holds it.
            "00010004 00000001 80010008 00000001 00000001: BAD_MATCH_DUP_FIELD",
            // An experimenter TLV shorter than its id.
            "ffff0002 00002320: BAD_MATCH_BAD_LEN",
        ],
    );
}

#[test]
fn instructions() {
    check(
        with_instructions,
        &[
            "00010008 03000000",
            "00010008 03000000 00010008 03000000: ONF_DUP_INST",
            "00010010 03000000: BAD_INSTRUCTION_BAD_LEN",
            "00010004 03000000: BAD_INSTRUCTION_BAD_LEN",
            "00020008 00000000: BAD_INSTRUCTION_BAD_LEN",
            "00090008 00000000: BAD_INSTRUCTION_UNKNOWN_INST",
            "ffff0008 00000000: BAD_INSTRUCTION_BAD_EXPERIMENTER",
        ],
    );
}

#[test]
fn actions() {
    check(
        with_action,
        &[
            "00160008 00000001",
            "00160010 00000001: BAD_ACTION_BAD_LEN",
            "00160000 00000001: BAD_ACTION_BAD_LEN",
            "00630008 00000001: BAD_ACTION_BAD_TYPE",
            "ffff0008 00000001: BAD_ACTION_BAD_EXPERIMENTER",
            // Nicira's.
            "ffff0010 00002320 0011000000000000",
            "ffff0010 00002320 003c000000000000: BAD_ACTION_BAD_EXP_TYPE",
            "ffff0010 00002320 0007000000000000: BAD_ACTION_BAD_LEN",
            // Output to LOCAL, ANY, the lowest port that does not exist, MAX.
            "00000010 fffffffe 0000000000000000",
            "00000010 ffffffff 0000000000000000: BAD_ACTION_BAD_OUT_PORT",
            "00000010 0000ff00 0000000000000000: BAD_ACTION_BAD_OUT_PORT",
            "00000010 ffffff00 0000000000000000: BAD_ACTION_BAD_OUT_PORT",
            // A clone of a truncated action.
            "ffff0018 00002320 002a000000000000 00160010 00000001: BAD_ACTION_BAD_LEN",
        ],
    );
}

#[test]
fn set_fields() {
    let set = |oxm: &[u8]| {
        let mut action = vec![0, 25, 0, 0];
        action.extend(oxm);
        action.resize(action.len().div_ceil(8) * 8, 0);
        action[3] = action.len() as u8;
        with_action(&action)
    };
    check(
        set,
        &[
            "80000c02 1005",
            // No tag to set an id in; a bit above; a mask; a wrong length; in_port;
            // an unknown field; a read-only one; padding; cut off.
            "80000c02 0005: BAD_ACTION_BAD_SET_ARGUMENT",
            "80000c02 3005: BAD_ACTION_BAD_SET_ARGUMENT",
            "80000d04 1005 1fff: ONF_BAD_SET_MASK",
            "80000c01 10: BAD_ACTION_BAD_SET_LEN",
            "80000004 00000001: BAD_ACTION_BAD_SET_ARGUMENT",
            "80000a02 0800: BAD_ACTION_BAD_SET_ARGUMENT",
            "80000c02 100501: BAD_ACTION_BAD_SET_ARGUMENT",
            "80003410 01020304: BAD_MATCH_BAD_LEN",
        ],
    );
}

#[test]
fn copies() {
    // Bits and offsets; ONF's copy_field, from and to other fields than these.
    let copy = |numbers: &[u8]| {
        let mut action = vec![0xff, 0xff, 0, 32, 0x4f, 0x4e, 0x46, 0, 0x0c, 0x80, 0, 0];
        action.extend(numbers);
        action.resize(20, 0);
        action.extend([0, 1, 0, 4, 0x80, 0, 2 << 1, 8, 0, 0, 0, 0]);
        // An output that is refused, too, but later.
        action.extend([0, 0, 0, 16, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
        with_action(&action)
    };
    check(
        copy,
        &[
            "0020 0000 0020: BAD_ACTION_BAD_OUT_PORT",
            "0021 0000 0000: BAD_ACTION_BAD_SET_LEN",
            "0020 0000 0021: BAD_ACTION_BAD_SET_LEN",
            "0000 0000 0000: BAD_ACTION_BAD_SET_LEN",
        ],
    );
}

#[test]
fn flow_mod_fields() {
    // An offset from the flow-mod's start, and the byte there.
    let change = |changes: &[u8]| {
        let mut bytes = frame(&[0, 1, 0, 4, 0, 0, 0, 0]);
        for change in changes.chunks(2) {
            bytes[usize::from(change[0])] = change[1];
        }
        bytes
    };
    check(
        change,
        &[
            "18ff: FLOW_MOD_FAILED_BAD_TABLE_ID",
            "1905: FLOW_MOD_FAILED_BAD_COMMAND",
            "2d20: FLOW_MOD_FAILED_BAD_FLAGS",
            "2400: BAD_ACTION_BAD_OUT_PORT",
            // A delete from all tables.
            "1903 18ff",
        ],
    );
}

#[test]
fn groups() {
    // Command, type, buckets.
    let group = |bytes: &[u8]| {
        let mut frame = vec![
            4,
            15,
            0,
            13 + bytes.len() as u8,
            0,
            0,
            0,
            0,
            0,
            bytes[1],
            bytes[2],
            0,
        ];
        frame.extend([0, 0, 0, 1]);
        frame.extend(&bytes[3..]);
        frame
    };
    check(
        group,
        &[
            "0000 00 00100000 ffffffff ffffffff 00000000",
            "0000 01 00100009 ffffffff ffffffff 00000000",
            "0002 02",
            "0002 00 00100000 ffffffff ffffffff 00000000: GROUP_MOD_FAILED_INVALID_GROUP",
            "0000 04: GROUP_MOD_FAILED_BAD_TYPE",
            "0004 00: GROUP_MOD_FAILED_BAD_COMMAND",
            "0000 02: GROUP_MOD_FAILED_INVALID_GROUP",
            "0000 00 00100001 ffffffff ffffffff 00000000: GROUP_MOD_FAILED_INVALID_GROUP",
            "0000 03 00100000 ffffffff ffffffff 00000000: GROUP_MOD_FAILED_INVALID_GROUP",
            "0000 00 0000000000000000: GROUP_MOD_FAILED_BAD_BUCKET",
            "0000 00 00000000000000000000000000000000: GROUP_MOD_FAILED_BAD_BUCKET",
            "0000 01 00100000 00ffffff ffffffff 00000000: GROUP_MOD_FAILED_BAD_WATCH",
        ],
    );
}

#[test]
fn meters() {
    // Command, flags, bands.
    let meter = |bytes: &[u8]| {
        let mut frame = vec![4, 29, 0, 12 + bytes.len() as u8, 0, 0, 0, 0];
        frame.extend(&bytes[..4]);
        frame.extend([0, 0, 0, 1]);
        frame.extend(&bytes[4..]);
        frame
    };
    check(
        meter,
        &[
            "0000 0001 00010010 00000001 00000001 00000000",
            "0002 0003 0000000000000000",
            "0003 0001: METER_MOD_FAILED_BAD_COMMAND",
            "0000 0003: METER_MOD_FAILED_BAD_FLAGS",
            "0000 0001 00030010 00000001 00000001 00000000: METER_MOD_FAILED_BAD_BAND",
            "0000 0001 00010018 00000001 00000001 00000000: BAD_REQUEST_BAD_LEN",
            "0000 0001 0000000000000000: BAD_REQUEST_BAD_LEN",
        ],
    );
}

#[test]
fn other_requests() {
    check(
        <[u8]>::to_vec,
        &[
            "04180018 00000000 00000004 000000000000000000000000: ROLE_REQUEST_FAILED_BAD_ROLE",
            "0409000c 00000000 00040000: SWITCH_CONFIG_FAILED_BAD_FLAGS",
            // Packet-outs: in_port 1, CONTROLLER, two that do not exist, actions beyond the end.
            "040d0018 00000000 ffffffff 00000001 0000000000000000",
            "040d0018 00000000 ffffffff fffffffd 0000000000000000",
            "040d0018 00000000 ffffffff 0000ff00 0000000000000000: BAD_ACTION_BAD_OUT_PORT",
            "040d0018 00000000 ffffffff fffffffb 0000000000000000: BAD_REQUEST_BAD_PORT",
            "040d0018 00000000 ffffffff 00000001 0008000000000000: BAD_REQUEST_BAD_LEN",
        ],
    );
}

#[test]
fn a_switch_may_say_what_a_controller_may_not() {
    // copy_ttl_in, an unknown action of Nicira's, an unknown instruction, an
    // unknown field.
    let instructions = [
        vec![0, 4, 0, 32, 0, 0, 0, 0, 0, 12, 0, 8, 0, 0, 0, 0],
        vec![255, 255, 0, 16, 0, 0, 0x23, 0x20, 0, 60, 0, 0, 0, 0, 0, 0],
        vec![0, 9, 0, 8, 1, 2, 3, 4],
    ]
    .concat();
    let refusal = decode(&with_instructions(&instructions)).unwrap_err();
    assert_eq!(refusal.error, ErrorCode::BAD_INSTRUCTION_UNKNOWN_INST);
    let mut frame = vec![4, 19, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    frame.extend([0, 56 + 8 + instructions.len() as u8, 0, 0]);
    frame.extend([0; 44]);
    frame.extend([0, 1, 0, 10, 0x90, 0, 0, 2, 1, 2, 0, 0, 0, 0, 0, 0]);
    frame.extend(&instructions);
    let length = (frame.len() as u16).to_be_bytes();
    frame[2..4].copy_from_slice(&length);
    let (header, message) = decode(&frame).unwrap();
    assert_eq!(encode(header.xid, &message).unwrap(), frame);
    let Message::MultipartReply(Multipart {
        body: MultipartReply::Flow(rules),
        ..
    }) = message
    else {
        panic!("another message")
    };
    let mut seen = Vec::new();
    rules[0]
        .instructions
        .for_each_action(&mut |item| seen.push(item.action));
    assert!(matches!(
        seen[..],
        [Action::CopyTtlIn, Action::Nicira { subtype: 60, .. }]
    ));
    assert!(rules[0].matching.canonical().is_err());
}
