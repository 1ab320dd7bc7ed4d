//! Messages of Nicira and the ONF that every version of OpenFlow carries
//! (include/openvswitch/ofp-msgs.h, include/openflow/nicira-ext.h).

use crate::async_config;
use crate::error::{ErrorCode, Refusal};
use crate::flow_monitor::{cancelled, NICIRA_PAUSED, NICIRA_RESUMED, ONF_PAUSED, ONF_RESUMED};
use crate::group::before_15;
use crate::header::{kind, HEADER_LEN, VERSION};
use crate::message::Message;
use crate::nicira::subtype;
use crate::openflow10::{self, PacketInFormat};
use crate::session::{AsyncMasks, Experimenter, Role};
use crate::tlv_table::TlvTableMod;
use crate::wire::{patch_length, u32_at, Put, Reader};
use crate::{NX_VENDOR, ONF_VENDOR};

/// `onft` subtypes: notifications, which controllers do not send.
mod notification {
    #![allow(missing_docs)]
    pub const ROLE_STATUS: u32 = 1911;
    pub const REQUEST_FORWARD: u32 = 2350;
}

pub use notification::{REQUEST_FORWARD, ROLE_STATUS};

/// A controller's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extension {
    /// A request for a role of OpenFlow 1.3, without a generation.
    Role(u32),
    /// A choice of a format of packet-ins.
    PacketInFormat(PacketInFormat),
    /// A choice of asynchronous messages.
    AsyncMasks(AsyncMasks),
    /// A choice of packet-ins by the `id` of their action `controller`.
    ControllerId(u16),
    /// A change of the fields for tunnels' options.
    TlvTableMod(TlvTableMod),
    /// A request for these fields.
    TlvTableRequest,
    /// The continuation of a packet's processing (`continuation.rs`).
    Resume,
    /// The removal of tracked connections. Open vSwitch checks its content.
    FlushConnections,
    /// The end of a flow monitor.
    CancelMonitor(u32),
    /// Something that has an effect over OpenFlow 1.0 only.
    Nothing,
}

/// The length of a body: `least` bytes, or more by a multiple of `step`.
#[derive(Clone, Copy)]
struct Length {
    least: usize,
    step: usize,
}

const fn exactly(least: usize) -> Length {
    Length { least, step: 0 }
}

const fn at_least(least: usize, step: usize) -> Length {
    Length { least, step }
}

impl Length {
    fn fits(self, length: usize) -> bool {
        match (length.checked_sub(self.least), self.step) {
            (Some(0), _) => true,
            (Some(more), step) => step != 0 && more % step == 0,
            (None, _) => false,
        }
    }
}

/// Returns the length that Open vSwitch requires over a version before it looks
/// at anything else; `None`: it does not know the message.
fn length(version: u8, vendor: u32, number: u32) -> Option<Length> {
    use notification::*;
    use subtype::*;
    Some(match (vendor, number) {
        (NX_VENDOR, ROLE_REQUEST | ROLE_REPLY | SET_PACKET_IN_FORMAT) => exactly(4),
        (NX_VENDOR, FLOW_REMOVED) => at_least(40, 8),
        (NX_VENDOR, FLOW_MOD_TABLE_ID | SET_CONTROLLER_ID) => exactly(8),
        (NX_VENDOR, PACKET_IN) => at_least(24, 1),
        (NX_VENDOR, FLOW_AGE | TLV_TABLE_REQUEST) => exactly(0),
        (NX_VENDOR, TLV_TABLE_MOD) => at_least(8, 8),
        (NX_VENDOR, SET_ASYNC_CONFIG) => exactly(24),
        (NX_VENDOR, TLV_TABLE_REPLY) => at_least(16, 8),
        (NX_VENDOR, SET_ASYNC_CONFIG2 | PACKET_IN2 | RESUME) => at_least(0, 8),
        (NX_VENDOR, CT_FLUSH_ZONE | CT_FLUSH) => at_least(0, 1),
        (NX_VENDOR, NICIRA_PAUSED | NICIRA_RESUMED) if version == openflow10::VERSION => exactly(0),
        (ONF_VENDOR, ONF_PAUSED | ONF_RESUMED) => exactly(0),
        (ONF_VENDOR, ROLE_STATUS) => at_least(16, 8),
        (ONF_VENDOR, REQUEST_FORWARD) => at_least(8, 8),
        _ => return None,
    })
}

/// Decodes a message of a controller that speaks `version`, given the
/// asynchronous messages that it has chosen.
///
/// # Errors
/// Open vSwitch's error for a message that it does not take.
pub fn decode(
    version: u8,
    message: &Experimenter,
    current: AsyncMasks,
) -> Result<Extension, Refusal> {
    if let Some(id) = cancelled(version, message) {
        return id.map(Extension::CancelMonitor);
    }
    let (number, body) = (message.subtype, &*message.body);
    let refuse = |error, what: &str| {
        let vendor = message.vendor;
        let detail = format!("message {number} of vendor {vendor:#x}: {what}");
        Err(Refusal::new(error, detail))
    };
    let Some(length) = length(version, message.vendor, number) else {
        return match message.vendor {
            NX_VENDOR | ONF_VENDOR => refuse(ErrorCode::BAD_REQUEST_BAD_EXP_TYPE, "unknown"),
            _ => refuse(ErrorCode::BAD_REQUEST_BAD_EXPERIMENTER, "unknown vendor"),
        };
    };
    if !length.fits(body.len()) {
        let what = format!("{} bytes", body.len());
        return refuse(ErrorCode::BAD_REQUEST_BAD_LEN, &what);
    }
    let mut reader = Reader::new(body);
    Ok(match (message.vendor, number) {
        (NX_VENDOR, subtype::ROLE_REQUEST) => Extension::Role(role(reader.u32()?)?),
        (NX_VENDOR, subtype::SET_PACKET_IN_FORMAT) => {
            Extension::PacketInFormat(packet_in_format(reader.u32()?)?)
        }
        (NX_VENDOR, subtype::SET_ASYNC_CONFIG) => Extension::AsyncMasks(AsyncMasks::decode(body)?),
        (NX_VENDOR, subtype::SET_ASYNC_CONFIG2) => {
            Extension::AsyncMasks(async_config::properties(body, current, VERSION)?)
        }
        (NX_VENDOR, subtype::SET_CONTROLLER_ID) => {
            if reader.array::<6>()? != [0; 6] {
                return refuse(ErrorCode::NX_MUST_BE_ZERO, "its padding is not zero");
            }
            Extension::ControllerId(reader.u16()?)
        }
        (NX_VENDOR, subtype::TLV_TABLE_MOD) => Extension::TlvTableMod(TlvTableMod::decode(body)?),
        (NX_VENDOR, subtype::TLV_TABLE_REQUEST) => Extension::TlvTableRequest,
        (NX_VENDOR, subtype::RESUME) => Extension::Resume,
        (NX_VENDOR, subtype::CT_FLUSH_ZONE | subtype::CT_FLUSH) => Extension::FlushConnections,
        (NX_VENDOR, subtype::FLOW_MOD_TABLE_ID | subtype::FLOW_AGE) => Extension::Nothing,
        _ => {
            return refuse(
                ErrorCode::BAD_REQUEST_BAD_TYPE,
                "controllers do not send it",
            )
        }
    })
}

/// Converts `nx_role`, which counts from 0.
fn role(number: u32) -> Result<u32, Refusal> {
    match number {
        0..=2 => Ok(number + Role::EQUAL),
        other => Err(Refusal::new(
            ErrorCode::ROLE_REQUEST_FAILED_BAD_ROLE,
            format!("role {other}"),
        )),
    }
}

/// Returns the reply to Nicira's request for a role.
pub fn role_reply(role: u32) -> Message {
    Message::Experimenter(Experimenter {
        vendor: NX_VENDOR,
        subtype: subtype::ROLE_REPLY,
        body: role.saturating_sub(Role::EQUAL).to_be_bytes().into(),
    })
}

/// Returns the notification of a request that another controller has made.
pub fn request_forward(request: &[u8]) -> Message {
    Message::Experimenter(Experimenter {
        vendor: ONF_VENDOR,
        subtype: REQUEST_FORWARD,
        body: request.into(),
    })
}

/// Returns a message that forwards a group-mod without what only OpenFlow 1.5 can say,
/// for a peer of an earlier version; `None`: it is another message.
pub fn forwarded_before_15(frame: &[u8]) -> Option<Vec<u8>> {
    /// Where the forwarded message is.
    const REQUEST: usize = HEADER_LEN + 8;
    let numbers = (
        frame.get(1),
        u32_at(frame, HEADER_LEN),
        u32_at(frame, HEADER_LEN + 4),
    );
    let forwards = (
        Some(&kind::EXPERIMENTER),
        Some(ONF_VENDOR),
        Some(REQUEST_FORWARD),
    );
    let is_group_mod = frame.get(REQUEST + 1) == Some(&kind::GROUP_MOD);
    if numbers != forwards || !is_group_mod {
        return None;
    }
    let (head, request) = frame.split_at_checked(REQUEST)?;
    let mut out = head.to_vec();
    out.put(&before_15(request));
    patch_length(&mut out, 0, 2);
    Some(out)
}

/// Returns the message that chooses a format of packet-ins.
pub fn set_packet_in_format(format: PacketInFormat) -> Message {
    let number: u32 = match format {
        PacketInFormat::Standard => 0,
        PacketInFormat::Nicira => 1,
        PacketInFormat::Nicira2 => 2,
    };
    Message::Experimenter(Experimenter {
        vendor: NX_VENDOR,
        subtype: subtype::SET_PACKET_IN_FORMAT,
        body: number.to_be_bytes().into(),
    })
}

/// Returns the message that chooses packet-ins by the id of their action.
pub fn set_controller_id(id: u16) -> Message {
    let mut body = vec![0; 6];
    body.extend(id.to_be_bytes());
    Message::Experimenter(Experimenter {
        vendor: NX_VENDOR,
        subtype: subtype::SET_CONTROLLER_ID,
        body: body.into(),
    })
}

fn packet_in_format(number: u32) -> Result<PacketInFormat, Refusal> {
    match number {
        0 => Ok(PacketInFormat::Standard),
        1 => Ok(PacketInFormat::Nicira),
        2 => Ok(PacketInFormat::Nicira2),
        other => Err(Refusal::new(
            ErrorCode::BAD_REQUEST_EPERM,
            format!("unknown packet-in format {other}"),
        )),
    }
}

/// Returns the error for a request for statistics of a vendor: without
/// statistics, Open vSwitch refuses those of IPFIX, which it knows, too.
pub fn statistics_error(request: &Experimenter) -> ErrorCode {
    /// `NXST_IPFIX_BRIDGE` and `NXST_IPFIX_FLOW`.
    const IPFIX: [u32; 2] = [3, 4];
    match request.vendor {
        NX_VENDOR if IPFIX.contains(&request.subtype) => match request.body.len() {
            0 => ErrorCode::NX_STATS_NOT_CONFIGURED,
            _ => ErrorCode::BAD_REQUEST_BAD_LEN,
        },
        NX_VENDOR | ONF_VENDOR => ErrorCode::BAD_REQUEST_BAD_EXP_TYPE,
        _ => ErrorCode::BAD_REQUEST_BAD_EXPERIMENTER,
    }
}
