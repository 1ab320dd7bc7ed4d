//! Actions that send to controllers, as Open vSwitch reports them (`encode_CONTROLLER()`): without properties that have their default.

use super::spelling::u16_at;

const CONTROLLER2: u16 = 37;
const HEAD: usize = 16;
/// Properties: lengths of packets, ids and reasons.
const MAX_LEN: u16 = 0;
const CONTROLLER_ID: u16 = 1;
const REASON: u16 = 2;
/// `OFPR_ACTION`, which is followed by padding.
const ACTION: u16 = 1 << 8;

/// Returns such an action as it is reported; `None`: it is none, or cannot be read.
pub fn spelled(action: &[u8]) -> Option<Vec<u8>> {
    if u16_at(action, 8)? != CONTROLLER2 {
        return None;
    }
    let mut properties: Vec<(u16, Vec<u8>)> = Vec::new();
    let mut rest = action.get(HEAD..)?;
    while !rest.is_empty() {
        let (kind, length) = (u16_at(rest, 0)?, usize::from(u16_at(rest, 2)?));
        let (property, later) = rest.split_at_checked(length.max(4).next_multiple_of(8))?;
        rest = later;
        let (default, value) = match kind {
            MAX_LEN => (u16::MAX, u16_at(property, 4)?),
            CONTROLLER_ID => (0, u16_at(property, 4)?),
            REASON => (ACTION, u16_at(property, 4)? & 0xff00),
            _ => {
                properties.push((kind, property.to_vec()));
                continue;
            }
        };
        if value != default {
            let words = [kind, 8, value, 0];
            properties.push((kind, words.into_iter().flat_map(u16::to_be_bytes).collect()));
        }
    }
    properties.sort_by_key(|(kind, _)| *kind);
    let mut out = action.get(..HEAD)?.to_vec();
    out.extend(properties.into_iter().flat_map(|(_, property)| property));
    let length = u16::try_from(out.len()).ok()?;
    out.get_mut(2..4)?.copy_from_slice(&length.to_be_bytes());
    Some(out)
}
