//! Nicira's configurations of asynchronous messages, in messages of OpenFlow
//! 1.3 (include/openflow/nicira-ext.h).

use crate::error::{ErrorCode, Refusal};
use crate::session::{AsyncMasks, Experimenter};
use crate::wire::{padded, Reader};
use crate::NX_VENDOR;

/// `NXT_SET_ASYNC_CONFIG`.
const SET_ASYNC_CONFIG: u32 = 19;
/// `NXT_SET_ASYNC_CONFIG2`, a list of OpenFlow 1.4's properties.
const SET_ASYNC_CONFIG2: u32 = 27;

/// Kinds of messages, each with two properties: 2 * kind is that of a slave, the
/// next one that of a master. The last two constants are whole properties.
mod property {
    pub const PACKET_IN: u16 = 0;
    pub const PORT_STATUS: u16 = 1;
    pub const FLOW_REMOVED: u16 = 2;
    /// The first and the last one about role status, table status and
    /// forwarded requests.
    pub const LATER: [u16; 2] = [6, 11];
    pub const EXPERIMENTER: u16 = 0xffff;
}

/// Returns the masks that a message of Nicira's chooses, given the current
/// ones; `None` if it is about something else.
pub fn chosen_async_masks(
    message: &Experimenter,
    current: AsyncMasks,
) -> Option<Result<AsyncMasks, Refusal>> {
    match (message.vendor, message.subtype) {
        (NX_VENDOR, SET_ASYNC_CONFIG) => Some(masks(&message.body)),
        (NX_VENDOR, SET_ASYNC_CONFIG2) => Some(properties(&message.body, current)),
        _ => None,
    }
}

fn masks(body: &[u8]) -> Result<AsyncMasks, Refusal> {
    match body.len() {
        24 => AsyncMasks::decode(body),
        other => Err(bad_length(other)),
    }
}

fn bad_length(length: usize) -> Refusal {
    let detail = format!("asynchronous configuration of {length} bytes");
    Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, detail)
}

/// Applies all properties, or none (`ofputil_decode_set_async_config`).
fn properties(body: &[u8], current: AsyncMasks) -> Result<AsyncMasks, Refusal> {
    if body.len() % 8 != 0 {
        return Err(bad_length(body.len()));
    }
    let mut masks = current;
    let mut rest = body;
    while !rest.is_empty() {
        let mut reader = Reader::new(rest);
        let (kind, length) = (reader.u16()?, usize::from(reader.u16()?));
        // Open vSwitch's OFPBPC_BAD_LEN has this code before OpenFlow 1.4.
        let bad_length = || {
            let detail = format!("property {kind} of {length} bytes");
            Refusal::new(ErrorCode::TABLE_FEATURES_FAILED_BAD_LEN, detail)
        };
        let after = rest.get(padded(length)..).filter(|_| length >= 4);
        rest = after.ok_or_else(bad_length)?;
        let (slot, allowed) = slot(&mut masks, kind)?;
        if length != 8 {
            return Err(bad_length());
        }
        let mask = reader.u32()?;
        if mask & !allowed != 0 {
            let detail = format!("mask {mask:#x} of property {kind}");
            return Err(Refusal::new(ErrorCode::ONF_ASYNC_INVALID, detail));
        }
        *slot = mask;
    }
    Ok(masks)
}

/// Returns the mask that a property sets, and the reasons that it may name.
fn slot(masks: &mut AsyncMasks, kind: u16) -> Result<(&mut u32, u32), Refusal> {
    let (pair, allowed) = match kind / 2 {
        property::PACKET_IN => (&mut masks.packet_in, 0x7),
        property::PORT_STATUS => (&mut masks.port_status, 0x7),
        property::FLOW_REMOVED => (&mut masks.flow_removed, 0x3f),
        _ => return Err(unknown(kind)),
    };
    let [master, slave] = pair;
    Ok((if kind % 2 == 0 { slave } else { master }, allowed))
}

fn unknown(kind: u16) -> Refusal {
    let [first, last] = property::LATER;
    let (error, what) = match kind {
        property::EXPERIMENTER => (ErrorCode::ONF_PROPERTY_BAD_EXP_TYPE, "unknown"),
        kind if (first..=last).contains(&kind) => {
            (ErrorCode::BAD_REQUEST_BAD_EXPERIMENTER, "unsupported")
        }
        _ => (ErrorCode::ONF_ASYNC_UNSUPPORTED, "unknown"),
    };
    let detail = format!("{what} property {kind} of an asynchronous configuration");
    Refusal::new(error, detail)
}
