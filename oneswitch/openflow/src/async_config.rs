//! The properties of asynchronous messages of OpenFlow 1.4, which Nicira's
//! NXT_SET_ASYNC_CONFIG2 brings to earlier versions (include/openflow/nicira-ext.h).

use crate::error::{ErrorCode, Refusal};
use crate::header::VERSION_14;
use crate::properties::{bad_content, Properties};
use crate::session::AsyncMasks;

/// Kinds of messages, each with two properties: 2 * kind is that of a slave, the
/// next one that of a master. The last constant is a type of properties.
mod property {
    pub const PACKET_IN: u16 = 0;
    pub const PORT_STATUS: u16 = 1;
    pub const FLOW_REMOVED: u16 = 2;
    pub const ROLE_STATUS: u16 = 3;
    pub const TABLE_STATUS: u16 = 4;
    pub const REQUEST_FORWARD: u16 = 5;
    /// The first of two types.
    pub const EXPERIMENTER: u16 = 0xfffe;
}

/// Applies all properties, or none (`ofputil_decode_set_async_config`).
pub(crate) fn properties(
    body: &[u8],
    current: AsyncMasks,
    version: u8,
) -> Result<AsyncMasks, Refusal> {
    let mut masks = current;
    for property in Properties::with_experimenters(body, property::EXPERIMENTER) {
        let (kind, content) = property?;
        let (slot, allowed) = slot(&mut masks, kind, version)?;
        let mask = <[u8; 4]>::try_from(content).map_err(|_| bad_content(kind, content))?;
        let mask = u32::from_be_bytes(mask);
        if mask & !allowed != 0 {
            let detail = format!("mask {mask:#x} of property {kind}");
            return Err(Refusal::new(ErrorCode::ONF_ASYNC_INVALID, detail));
        }
        *slot = mask;
    }
    Ok(masks)
}

/// Returns the mask that a property sets, and the reasons that it may name.
fn slot(masks: &mut AsyncMasks, kind: u16, version: u8) -> Result<(&mut u32, u32), Refusal> {
    let packet_in_reasons = if version < VERSION_14 { 0x7 } else { 0x3f };
    let (pair, allowed) = match kind / 2 {
        property::PACKET_IN => (&mut masks.packet_in, packet_in_reasons),
        property::PORT_STATUS => (&mut masks.port_status, 0x7),
        property::FLOW_REMOVED => (&mut masks.flow_removed, 0x3f),
        property::ROLE_STATUS => (&mut masks.role_status, 0x7),
        property::TABLE_STATUS => (&mut masks.table_status, 0x18),
        property::REQUEST_FORWARD => (&mut masks.request_forward, 0x3),
        _ => return Err(unknown(kind)),
    };
    let [master, slave] = pair;
    Ok((if kind % 2 == 0 { slave } else { master }, allowed))
}

fn unknown(kind: u16) -> Refusal {
    let error = match kind {
        property::EXPERIMENTER.. => ErrorCode::ONF_PROPERTY_BAD_EXP_TYPE,
        _ => ErrorCode::ONF_ASYNC_UNSUPPORTED,
    };
    let detail = format!("unknown property {kind} of an asynchronous configuration");
    Refusal::new(error, detail)
}
