//! The identities of `virt` bridges in the journal, by which packets are continued: only paused packets tell them.

use crate::journal::moves::array;
use openflow13::continuation::BridgeId;

/// The identity of a switch's `virt`, with the switch's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedBridge {
    pub name: String,
    pub bridge: BridgeId,
}

impl SavedBridge {
    fn decode(input: &mut &[u8]) -> Option<Self> {
        let [length] = array(input)?;
        let (name, rest) = input.split_at_checked(length.into())?;
        *input = rest;
        Some(Self {
            name: std::str::from_utf8(name).ok()?.into(),
            bridge: array(input)?,
        })
    }
}

/// Encodes the names of switches with what is known of them. A name of more than 255 bytes is left out.
pub fn encode<'a>(switches: impl Iterator<Item = (&'a str, Option<BridgeId>)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, bridge) in switches {
        if let (Ok(length), Some(bridge)) = (u8::try_from(name.len()), bridge) {
            out.push(length);
            out.extend(name.as_bytes());
            out.extend(bridge);
        }
    }
    out
}

/// Decodes; `None`: not the format of [`encode`].
pub fn decode(mut bytes: &[u8]) -> Option<Vec<SavedBridge>> {
    let input = &mut bytes;
    let mut saved = Vec::new();
    while !input.is_empty() {
        saved.push(SavedBridge::decode(input)?);
    }
    Some(saved)
}
