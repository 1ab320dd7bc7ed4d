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

#[track_caller]
fn refused(frame: &[u8], error: ErrorCode) {
    match decode(frame) {
        Err(refusal) => assert_eq!(refusal.error, error, "{refusal}"),
        Ok((_, message)) => panic!("accepted {message:?}"),
    }
}

#[track_caller]
fn accepted(frame: &[u8]) {
    decode(frame).unwrap();
}

#[test]
fn headers() {
    refused(&[4, 2, 0, 8, 0, 0, 0], ErrorCode::BAD_REQUEST_BAD_LEN);
    refused(&[4, 2, 0, 9, 0, 0, 0, 0], ErrorCode::BAD_REQUEST_BAD_LEN);
    refused(
        &[1, 2, 0, 8, 0, 0, 0, 0],
        ErrorCode::BAD_REQUEST_BAD_VERSION,
    );
    refused(&[4, 30, 0, 8, 0, 0, 0, 0], ErrorCode::BAD_REQUEST_BAD_TYPE);
    refused(
        &[4, 20, 0, 9, 0, 0, 0, 0, 0],
        ErrorCode::BAD_REQUEST_BAD_LEN,
    );
    accepted(&[6, 0, 0, 8, 0, 0, 0, 0]);
    let multipart = |kind: u8| vec![4, 18, 0, 16, 0, 0, 0, 0, 0, kind, 0, 0, 0, 0, 0, 0];
    accepted(&multipart(0));
    refused(&multipart(14), ErrorCode::BAD_REQUEST_BAD_MULTIPART);
    refused(&multipart(4), ErrorCode::BAD_REQUEST_BAD_LEN);
}

#[test]
fn matches() {
    refused(&frame(&[]), ErrorCode::BAD_MATCH_BAD_LEN);
    refused(
        &frame(&[0, 1, 0, 3, 0, 0, 0, 0]),
        ErrorCode::BAD_MATCH_BAD_LEN,
    );
    refused(
        &frame(&[0, 1, 0, 12, 0, 0, 0, 0]),
        ErrorCode::BAD_MATCH_BAD_LEN,
    );
    refused(
        &frame(&[0, 2, 0, 4, 0, 0, 0, 0]),
        ErrorCode::BAD_MATCH_BAD_TYPE,
    );
    refused(
        &frame(&[0, 1, 0, 4, 0, 0, 0, 0, 0]),
        ErrorCode::BAD_REQUEST_BAD_LEN,
    );
    // in_port: truncated, too short, unknown class, masked in part.
    refused(
        &with_oxm(&[0x80, 0, 0, 4, 0, 0, 0]),
        ErrorCode::BAD_MATCH_BAD_LEN,
    );
    refused(
        &with_oxm(&[0x80, 0, 0, 2, 0, 1]),
        ErrorCode::BAD_MATCH_BAD_FIELD,
    );
    refused(
        &with_oxm(&[0x90, 0, 0, 4, 0, 0, 0, 1]),
        ErrorCode::BAD_MATCH_BAD_FIELD,
    );
    refused(
        &with_oxm(&[0x80, 0, 1, 8, 0, 0, 0, 1, 0, 0, 0, 1]),
        ErrorCode::BAD_MATCH_BAD_MASK,
    );
    refused(
        &with_oxm(&[0x80, 0, 1, 8, 0, 0, 0, 2, 0, 0, 0, 1]),
        ErrorCode::BAD_MATCH_BAD_WILDCARDS,
    );
    accepted(&with_oxm(&[0x80, 0, 1, 8, 0, 0, 0, 1, 255, 255, 255, 255]));
    // Ports between 0xff00 and OFPP_MAX do not exist.
    refused(
        &with_oxm(&[0x80, 0, 0, 4, 0, 0, 0xff, 0]),
        ErrorCode::BAD_MATCH_BAD_VALUE,
    );
    // The 16-bit spelling is the same field.
    refused(
        &with_oxm(&[0x80, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0, 1]),
        ErrorCode::BAD_MATCH_DUP_FIELD,
    );
    // reg0 and the extended register that holds it.
    refused(
        &with_oxm(&[
            0, 1, 0, 4, 0, 0, 0, 1, 0x80, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1,
        ]),
        ErrorCode::BAD_MATCH_DUP_FIELD,
    );
    // An experimenter TLV shorter than its id.
    refused(
        &with_oxm(&[0xff, 0xff, 0, 2, 0, 0, 0x23, 0x20]),
        ErrorCode::BAD_MATCH_BAD_LEN,
    );
}

#[test]
fn instructions() {
    let goto = [0, 1, 0, 8, 3, 0, 0, 0];
    accepted(&with_instructions(&goto));
    refused(
        &with_instructions(&[goto, goto].concat()),
        ErrorCode::ONF_DUP_INST,
    );
    refused(
        &with_instructions(&[0, 1, 0, 16, 3, 0, 0, 0]),
        ErrorCode::BAD_INSTRUCTION_BAD_LEN,
    );
    refused(
        &with_instructions(&[0, 1, 0, 4, 3, 0, 0, 0]),
        ErrorCode::BAD_INSTRUCTION_BAD_LEN,
    );
    refused(
        &with_instructions(&[0, 2, 0, 8, 0, 0, 0, 0]),
        ErrorCode::BAD_INSTRUCTION_BAD_LEN,
    );
    refused(
        &with_instructions(&[0, 9, 0, 8, 0, 0, 0, 0]),
        ErrorCode::BAD_INSTRUCTION_UNKNOWN_INST,
    );
    refused(
        &with_instructions(&[255, 255, 0, 8, 0, 0, 0, 0]),
        ErrorCode::BAD_INSTRUCTION_BAD_EXPERIMENTER,
    );
}

#[test]
fn actions() {
    accepted(&with_action(&[0, 22, 0, 8, 0, 0, 0, 1]));
    refused(
        &with_action(&[0, 22, 0, 16, 0, 0, 0, 1]),
        ErrorCode::BAD_ACTION_BAD_LEN,
    );
    refused(
        &with_action(&[0, 22, 0, 0, 0, 0, 0, 1]),
        ErrorCode::BAD_ACTION_BAD_LEN,
    );
    refused(
        &with_action(&[0, 99, 0, 8, 0, 0, 0, 1]),
        ErrorCode::BAD_ACTION_BAD_TYPE,
    );
    refused(
        &with_action(&[255, 255, 0, 8, 0, 0, 0, 1]),
        ErrorCode::BAD_ACTION_BAD_EXPERIMENTER,
    );
    let nicira = |subtype: u8| {
        with_action(&[
            255, 255, 0, 16, 0, 0, 0x23, 0x20, 0, subtype, 0, 0, 0, 0, 0, 0,
        ])
    };
    accepted(&nicira(17));
    refused(&nicira(60), ErrorCode::BAD_ACTION_BAD_EXP_TYPE);
    refused(&nicira(7), ErrorCode::BAD_ACTION_BAD_LEN);
    let output = |port: u32| {
        let list = ActionList::new().output(port, 0);
        with_action(list.as_bytes())
    };
    accepted(&output(port_no::LOCAL));
    refused(&output(port_no::ANY), ErrorCode::BAD_ACTION_BAD_OUT_PORT);
    refused(&output(0xff00), ErrorCode::BAD_ACTION_BAD_OUT_PORT);
    refused(&output(port_no::MAX), ErrorCode::BAD_ACTION_BAD_OUT_PORT);
    // A clone of a truncated action.
    let mut clone = vec![255, 255, 0, 24, 0, 0, 0x23, 0x20, 0, 42, 0, 0, 0, 0, 0, 0];
    clone.extend([0, 22, 0, 16, 0, 0, 0, 1]);
    refused(&with_action(&clone), ErrorCode::BAD_ACTION_BAD_LEN);
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
    accepted(&set(&[0x80, 0, 12, 2, 0x10, 5]));
    // No tag to set an id in; a bit above; a mask; a wrong length; in_port;
    // an unknown field; a read-only one; padding; cut off.
    refused(
        &set(&[0x80, 0, 12, 2, 0, 5]),
        ErrorCode::BAD_ACTION_BAD_SET_ARGUMENT,
    );
    refused(
        &set(&[0x80, 0, 12, 2, 0x30, 5]),
        ErrorCode::BAD_ACTION_BAD_SET_ARGUMENT,
    );
    refused(
        &set(&[0x80, 0, 13, 4, 0x10, 5, 0x1f, 0xff]),
        ErrorCode::ONF_BAD_SET_MASK,
    );
    refused(
        &set(&[0x80, 0, 12, 1, 0x10]),
        ErrorCode::BAD_ACTION_BAD_SET_LEN,
    );
    refused(
        &set(&[0x80, 0, 0, 4, 0, 0, 0, 1]),
        ErrorCode::BAD_ACTION_BAD_SET_ARGUMENT,
    );
    refused(
        &set(&[0x80, 0, 10, 2, 8, 0]),
        ErrorCode::BAD_ACTION_BAD_SET_ARGUMENT,
    );
    refused(
        &set(&[0x80, 0, 12, 2, 0x10, 5, 1]),
        ErrorCode::BAD_ACTION_BAD_SET_ARGUMENT,
    );
    refused(
        &set(&[0x80, 0, 52, 16, 1, 2, 3, 4]),
        ErrorCode::BAD_MATCH_BAD_LEN,
    );
}

#[test]
fn flow_mod_fields() {
    let change = |at: usize, value: u8| {
        let mut bytes = frame(&[0, 1, 0, 4, 0, 0, 0, 0]);
        bytes[at] = value;
        bytes
    };
    let (table, command, out_port, flags) = (24, 25, 38, 45);
    refused(
        &change(table, 0xff),
        ErrorCode::FLOW_MOD_FAILED_BAD_TABLE_ID,
    );
    refused(&change(command, 5), ErrorCode::FLOW_MOD_FAILED_BAD_COMMAND);
    refused(&change(flags, 0x20), ErrorCode::FLOW_MOD_FAILED_BAD_FLAGS);
    refused(&change(out_port - 2, 0), ErrorCode::BAD_ACTION_BAD_OUT_PORT);
    let mut delete = change(command, 3);
    delete[table] = 0xff;
    accepted(&delete);
}

#[test]
fn groups() {
    let bucket = |weight: u8, watch: u8| {
        vec![
            0, 16, 0, weight, watch, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0,
        ]
    };
    let group = |command: u8, kind: u8, buckets: &[u8]| {
        let mut frame = vec![4, 15, 0, 16 + buckets.len() as u8, 0, 0, 0, 0];
        frame.extend([0, command, kind, 0, 0, 0, 0, 1]);
        frame.extend(buckets);
        frame
    };
    accepted(&group(0, group_type::ALL, &bucket(0, 255)));
    accepted(&group(0, group_type::SELECT, &bucket(9, 255)));
    accepted(&group(2, group_type::INDIRECT, &[]));
    refused(
        &group(2, 0, &bucket(0, 255)),
        ErrorCode::GROUP_MOD_FAILED_INVALID_GROUP,
    );
    refused(&group(0, 4, &[]), ErrorCode::GROUP_MOD_FAILED_BAD_TYPE);
    refused(&group(4, 0, &[]), ErrorCode::GROUP_MOD_FAILED_BAD_COMMAND);
    refused(
        &group(0, group_type::INDIRECT, &[]),
        ErrorCode::GROUP_MOD_FAILED_INVALID_GROUP,
    );
    refused(
        &group(0, group_type::ALL, &bucket(1, 255)),
        ErrorCode::GROUP_MOD_FAILED_INVALID_GROUP,
    );
    refused(
        &group(0, group_type::FAST_FAILOVER, &bucket(0, 255)),
        ErrorCode::GROUP_MOD_FAILED_INVALID_GROUP,
    );
    refused(
        &group(0, 0, &[0; 8]),
        ErrorCode::GROUP_MOD_FAILED_BAD_BUCKET,
    );
    refused(
        &group(0, 0, &[0; 16]),
        ErrorCode::GROUP_MOD_FAILED_BAD_BUCKET,
    );
    refused(
        &group(0, 1, &bucket(0, 0)),
        ErrorCode::GROUP_MOD_FAILED_BAD_WATCH,
    );
}

#[test]
fn meters() {
    let meter = |command: u8, flags: u8, bands: &[u8]| {
        let mut frame = vec![4, 29, 0, 16 + bands.len() as u8, 0, 0, 0, 0];
        frame.extend([0, command, 0, flags, 0, 0, 0, 1]);
        frame.extend(bands);
        frame
    };
    let band = |kind: u8, length: u8| vec![0, kind, 0, length, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    accepted(&meter(0, 1, &band(1, 16)));
    accepted(&meter(2, 3, &[0; 8]));
    refused(&meter(3, 1, &[]), ErrorCode::METER_MOD_FAILED_BAD_COMMAND);
    refused(&meter(0, 3, &[]), ErrorCode::METER_MOD_FAILED_BAD_FLAGS);
    refused(
        &meter(0, 1, &band(3, 16)),
        ErrorCode::METER_MOD_FAILED_BAD_BAND,
    );
    refused(&meter(0, 1, &band(1, 24)), ErrorCode::BAD_REQUEST_BAD_LEN);
    refused(&meter(0, 1, &[0; 8]), ErrorCode::BAD_REQUEST_BAD_LEN);
}

#[test]
fn other_requests() {
    let mut role = vec![4, 24, 0, 24, 0, 0, 0, 0];
    role.extend([0, 0, 0, 4]);
    role.extend([0; 12]);
    refused(&role, ErrorCode::ROLE_REQUEST_FAILED_BAD_ROLE);
    refused(
        &[4, 9, 0, 12, 0, 0, 0, 0, 0, 4, 0, 0],
        ErrorCode::SWITCH_CONFIG_FAILED_BAD_FLAGS,
    );
    let packet_out = |in_port: [u8; 4], length: u8| {
        let mut frame = vec![4, 13, 0, 24, 0, 0, 0, 0, 255, 255, 255, 255];
        frame.extend(in_port);
        frame.extend([0, length, 0, 0, 0, 0, 0, 0]);
        frame
    };
    accepted(&packet_out([0, 0, 0, 1], 0));
    accepted(&packet_out([255, 255, 255, 253], 0));
    refused(
        &packet_out([0, 0, 255, 0], 0),
        ErrorCode::BAD_ACTION_BAD_OUT_PORT,
    );
    refused(
        &packet_out([255, 255, 255, 251], 0),
        ErrorCode::BAD_REQUEST_BAD_PORT,
    );
    refused(&packet_out([0, 0, 0, 1], 8), ErrorCode::BAD_REQUEST_BAD_LEN);
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
    refused(
        &with_instructions(&instructions),
        ErrorCode::BAD_INSTRUCTION_UNKNOWN_INST,
    );
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
