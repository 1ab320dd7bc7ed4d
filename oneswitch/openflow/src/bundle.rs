//! Bundles: ONF extension 230 as in Open vSwitch over OpenFlow 1.3
//! (lib/ofp-bundle.c). A bundle may contain port-mods, flow-mods, group-mods
//! and packet-outs; the commit applies all of them, or none.

use crate::error::{ErrorCode, Oversize, Refusal};
use crate::header::{finish, start};
use crate::header::{kind, Header, HEADER_LEN, VERSION};
use crate::session::Experimenter;
use crate::wire::{Put, Reader};
use crate::ONF_VENDOR;

/// `ONFT_BUNDLE_CONTROL`.
pub const CONTROL: u32 = 2300;
/// `ONFT_BUNDLE_ADD_MESSAGE`.
pub const ADD_MESSAGE: u32 = 2301;

/// Apply all or nothing, also for packets.
pub const ATOMIC: u16 = 1 << 0;
/// Apply in the order of the messages.
pub const ORDERED: u16 = 1 << 1;

/// `ofp14_bundle_ctrl_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ControlType {
    OpenRequest = 0,
    OpenReply = 1,
    CloseRequest = 2,
    CloseReply = 3,
    CommitRequest = 4,
    CommitReply = 5,
    DiscardRequest = 6,
    DiscardReply = 7,
}

impl ControlType {
    fn from_wire(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::OpenRequest,
            1 => Self::OpenReply,
            2 => Self::CloseRequest,
            3 => Self::CloseReply,
            4 => Self::CommitRequest,
            5 => Self::CommitReply,
            6 => Self::DiscardRequest,
            7 => Self::DiscardReply,
            _ => return None,
        })
    }

    /// Returns the answer to a request; `None` for a reply.
    pub fn reply(self) -> Option<Self> {
        match self {
            Self::OpenRequest => Some(Self::OpenReply),
            Self::CloseRequest => Some(Self::CloseReply),
            Self::CommitRequest => Some(Self::CommitReply),
            Self::DiscardRequest => Some(Self::DiscardReply),
            _ => None,
        }
    }
}

/// A bundle control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// The bundle, numbered by the controller.
    pub bundle_id: u32,
    /// The requested or completed operation.
    pub control_type: ControlType,
    /// [`ATOMIC`] and [`ORDERED`]; later messages must repeat those of the
    /// open.
    pub flags: u16,
}

/// A message in a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Add<'a> {
    /// The bundle.
    pub bundle_id: u32,
    /// As in [`Control::flags`].
    pub flags: u16,
    /// The message to apply, with the xid of the outer one.
    pub inner: &'a [u8],
}

/// Bundle messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Bundle<'a> {
    Control(Control),
    Add(Add<'a>),
}

/// Encodes a bundle control message.
pub fn encode_control(xid: u32, control: Control) -> Vec<u8> {
    let mut out = start(xid, kind::EXPERIMENTER);
    out.put_u32(ONF_VENDOR);
    out.put_u32(CONTROL);
    out.put_u32(control.bundle_id);
    out.put_u16(control.control_type as u16);
    out.put_u16(control.flags);
    // 24 bytes always fit.
    finish(out).unwrap_or_default()
}

fn request(xid: u32, bundle_id: u32, control_type: ControlType) -> Vec<u8> {
    encode_control(
        xid,
        Control {
            bundle_id,
            control_type,
            flags: ATOMIC | ORDERED,
        },
    )
}

/// Opens an atomic, ordered bundle.
pub fn encode_open(xid: u32, bundle_id: u32) -> Vec<u8> {
    request(xid, bundle_id, ControlType::OpenRequest)
}

/// Applies an atomic, ordered bundle.
pub fn encode_commit(xid: u32, bundle_id: u32) -> Vec<u8> {
    request(xid, bundle_id, ControlType::CommitRequest)
}

/// Discards an atomic, ordered bundle.
pub fn encode_discard(xid: u32, bundle_id: u32) -> Vec<u8> {
    request(xid, bundle_id, ControlType::DiscardRequest)
}

/// Adds a message to an atomic, ordered bundle. The outer message takes the xid
/// of `inner`, as Open vSwitch requires. Fails if `inner` has more than 65,511
/// bytes.
pub fn encode_add(bundle_id: u32, inner: &[u8]) -> Result<Vec<u8>, Oversize> {
    let xid = Header::parse(inner).map_or(0, |header| header.xid);
    let mut out = start(xid, kind::EXPERIMENTER);
    out.put_u32(ONF_VENDOR);
    out.put_u32(ADD_MESSAGE);
    out.put_u32(bundle_id);
    out.put_u16(0);
    out.put_u16(ATOMIC | ORDERED);
    out.put(inner);
    finish(out)
}

/// Parses a bundle message; `None` if it is another experimenter's message.
/// `xid` is that of the message's header.
pub fn decode(xid: u32, message: &Experimenter) -> Option<Result<Bundle<'_>, Refusal>> {
    match (message.vendor, message.subtype) {
        (ONF_VENDOR, CONTROL) => Some(decode_control(&message.body).map(Bundle::Control)),
        (ONF_VENDOR, ADD_MESSAGE) => Some(decode_add(xid, &message.body).map(Bundle::Add)),
        _ => None,
    }
}

fn decode_control(body: &[u8]) -> Result<Control, Refusal> {
    let mut reader = Reader::new(body);
    let bundle_id = reader.u32()?;
    let number = reader.u16()?;
    let flags = reader.u16()?;
    if reader.len() % 8 != 0 {
        return Err(Refusal::new(
            ErrorCode::BAD_REQUEST_BAD_LEN,
            "bundle control is not padded to 8 bytes",
        ));
    }
    let control_type = ControlType::from_wire(number).ok_or_else(|| {
        Refusal::new(
            ErrorCode::ONF_BUNDLE_BAD_TYPE,
            format!("bundle control of type {number}"),
        )
    })?;
    Ok(Control {
        bundle_id,
        control_type,
        flags,
    })
}

/// `ofputil_decode_bundle_add`, without the check whether the message is
/// allowed in a bundle.
fn decode_add(xid: u32, body: &[u8]) -> Result<Add<'_>, Refusal> {
    let mut reader = Reader::new(body);
    let bundle_id = reader.u32()?;
    reader.skip(2)?;
    let flags = reader.u16()?;
    let rest = reader.rest();
    let bad_length = || {
        Refusal::new(
            ErrorCode::ONF_BUNDLE_MSG_BAD_LEN,
            "truncated message in bundle",
        )
    };
    let inner = Header::parse(rest).ok_or_else(bad_length)?;
    if inner.version != VERSION {
        // OFPBFC_BAD_VERSION has no code in OpenFlow 1.3.
        return Err(Refusal::new(
            ErrorCode::NX_UNENCODABLE_ERROR,
            "message in bundle has a different version",
        ));
    }
    let length = usize::from(inner.length);
    let message = rest.get(..length).ok_or_else(bad_length)?;
    if length < HEADER_LEN {
        return Err(bad_length());
    }
    if inner.xid != xid {
        return Err(Refusal::new(
            ErrorCode::ONF_BUNDLE_MSG_BAD_XID,
            "message in bundle has a different xid",
        ));
    }
    Ok(Add {
        bundle_id,
        flags,
        inner: message,
    })
}
