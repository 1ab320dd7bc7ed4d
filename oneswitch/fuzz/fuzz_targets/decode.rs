//! Decodes what a peer could send and checks what must hold for any bytes.
//!
//! The length in the header is set to that of the input, so that the fuzzer
//! does not have to find it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use openflow13::{
    actions, bundle, decode, encode, frame_length, Instruction, Match, Message, MultipartReply,
    MultipartRequest,
};

fuzz_target!(|input: &[u8]| {
    let Ok(length) = u16::try_from(input.len()) else {
        return;
    };
    let _ = frame_length(input);
    let mut frame = input.to_vec();
    if let Some(slot) = frame.get_mut(2..4) {
        slot.copy_from_slice(&length.to_be_bytes());
    }
    let (header, message) = match decode(&frame) {
        Ok(decoded) => decoded,
        Err(refusal) => {
            let answer = openflow13::encode_error(0, refusal.error, &frame);
            assert!(decode(&answer).is_ok());
            return;
        }
    };
    let encoded = encode(header.xid, &message).expect("a decoded message fits");
    let (again_header, again) = decode(&encoded).expect("an encoded message decodes");
    assert_eq!(again, message);
    assert_eq!(again_header.xid, header.xid);
    look_into(header.xid, &message);
});

/// Reads all parts that are kept raw, and compares matches.
fn look_into(xid: u32, message: &Message) {
    match message {
        Message::FlowMod(flow) => {
            // Each match that a request may have has a key.
            relate(&flow.matching).expect("a checked match has a key");
            flow.instructions.for_each_action(&mut |item| {
                // An action's offset is where its bytes are.
                let at = flow.instructions.as_bytes().get(item.offset..);
                assert!(at.is_some_and(|bytes| bytes.starts_with(item.raw)));
            });
            for instruction in flow.instructions.iter() {
                assert!(!matches!(instruction, Instruction::Experimenter(_)));
            }
        }
        Message::PacketOut(packet) => actions::flatten(packet.actions.as_actions(), &mut |_| ()),
        Message::PacketIn(packet) => drop(relate(&packet.matching)),
        Message::FlowRemoved(removed) => drop(relate(&removed.matching)),
        Message::GroupMod(group) => {
            for bucket in group.buckets.iter() {
                actions::flatten(bucket.actions, &mut |_| ());
            }
        }
        Message::MultipartRequest(request) => match &request.body {
            MultipartRequest::Flow(flow) | MultipartRequest::Aggregate(flow) => {
                relate(&flow.matching).expect("a checked match has a key");
            }
            _ => {}
        },
        Message::MultipartReply(reply) => {
            if let MultipartReply::Flow(rules) = &reply.body {
                for rule in rules {
                    let _ = relate(&rule.matching);
                    rule.instructions.for_each_action(&mut |_| ());
                }
            }
            let frames = openflow13::encode_multipart_reply(xid, &reply.body);
            assert!(frames.iter().all(|frame| decode(frame).is_ok()));
        }
        Message::Experimenter(message) => drop(bundle::decode(xid, message)),
        _ => {}
    }
}

/// The relations of a match with itself and with the match on nothing.
fn relate(matching: &Match) -> Option<()> {
    let _ = matching.in_port();
    let key = matching.canonical().ok()?;
    assert_eq!(
        Match::from_oxm(matching.as_oxm().to_vec()).as_ref(),
        Ok(matching)
    );
    assert!(key.covers(&key));
    assert!(key.overlaps(&key));
    let any = Match::any().canonical().ok()?;
    assert!(any.covers(&key) && any.overlaps(&key) && key.overlaps(&any));
    // A part of a match is more general than the whole. The fourth byte of a
    // field is the length of what follows.
    let oxm = matching.as_oxm();
    let length = oxm.get(3).map_or(0, |&length| 4 + usize::from(length));
    let oxm = oxm.get(..length)?.to_vec();
    let first = Match::from_oxm(oxm).ok()?.canonical().ok()?;
    assert!(first.covers(&key));
    assert_eq!(key.covers(&first), key == first);
    Some(())
}
