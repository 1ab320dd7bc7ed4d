//! The fields that only OpenFlow 1.5 has: messages of OpenFlow 1.3 carry them in their padding, inside
//! of this program.

use crate::group::{before_15, Buckets, GroupMod, GroupModCommand, EXTRAS};
use crate::header::{kind, HEADER_LEN};
use crate::message::{decode, encode, Message};
use std::ops::Range;

/// Where a message that adds another one to a bundle has that.
const ADDED: usize = 24;
/// Where a packet-out has padding.
const PACKET_TYPE: Range<usize> = HEADER_LEN + 10..HEADER_LEN + 16;

/// Returns a message of a peer before OpenFlow 1.5 without what would be numbers
/// of buckets, a selection or a packet type, where such messages have padding; `None`: it has none.
/// The message may be in one that adds it to a bundle.
pub fn without_later_fields(frame: &[u8]) -> Option<Vec<u8>> {
    let is_of = |start: usize, kind: u8| frame.get(start + 1) == Some(&kind);
    let start = if is_of(0, kind::EXPERIMENTER) {
        ADDED
    } else {
        0
    };
    let padding = match () {
        () if is_of(start, kind::GROUP_MOD) => start + EXTRAS..start + EXTRAS + 1,
        () if is_of(start, kind::PACKET_OUT) => start + PACKET_TYPE.start..start + PACKET_TYPE.end,
        () => return None,
    };
    frame
        .get(padding.clone())?
        .iter()
        .find(|byte| **byte != 0)?;
    let mut out = frame.to_vec();
    if let Some(bytes) = out.get_mut(padding) {
        bytes.fill(0);
    }
    Some(out)
}

/// Returns a whole group-mod without what switches can read only over OpenFlow 1.5.
pub fn group_mod_before_15(group_mod: &[u8]) -> Vec<u8> {
    match decode(group_mod) {
        Ok((header, Message::GroupMod(message)))
            if message.command == GroupModCommand::Delete || message.buckets.have_meter() =>
        {
            let buckets = match message.command {
                GroupModCommand::Delete => Buckets::default(),
                _ => message.buckets.without_meters(),
            };
            let without = GroupMod { buckets, ..message };
            let encoded = encode(header.xid, &Message::GroupMod(without));
            before_15(encoded.as_deref().unwrap_or(group_mod))
        }
        _ => before_15(group_mod),
    }
}
