//! Messages about the connection and the switch as a whole: hello, features,
//! configuration, roles, asynchronous messages, tables; errors.

use crate::codes10::put_error;
use crate::codes14::{error_13, error_14, error_15};
use crate::error::{ErrorCode, Refusal, EXPERIMENTER_ERROR};
use crate::header::{kind, HEADER_LEN, VERSION, VERSION_10, VERSION_14, VERSION_15};
use crate::wire::{padded, patch_length, Put, Reader};

/// `OFPHET_VERSIONBITMAP`.
const VERSION_BITMAP: u16 = 1;

/// `ofp_hello` (OpenFlow 1.3.5, section 6.3.1, 7.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Version in the header: the highest that the sender supports.
    pub version: u8,
    /// Versions 0 to 31 that the sender supports, as a bitmap, if sent.
    pub bitmap: Option<u32>,
}

impl Hello {
    /// Reads a whole HELLO message.
    pub fn of_frame(frame: &[u8]) -> Self {
        let version = frame.first().copied().unwrap_or_default();
        Self::decode(version, frame.get(HEADER_LEN..).unwrap_or_default())
    }

    /// Encodes the message.
    pub fn to_frame(self, xid: u32) -> Vec<u8> {
        let mut frame = vec![self.version, kind::HELLO, 0, 0];
        frame.put_u32(xid);
        self.put(&mut frame);
        patch_length(&mut frame, 0, 2);
        frame
    }

    /// Creates a hello for the versions of a bitmap.
    pub fn new(versions: u32) -> Self {
        Self {
            version: highest(versions).unwrap_or_default(),
            bitmap: Some(versions),
        }
    }

    /// Returns the versions that the sender supports: without a bitmap all up
    /// to that in the header (`ofputil_decode_hello`).
    pub fn versions(&self) -> u32 {
        match self.bitmap {
            Some(bitmap) if bitmap & !1 != 0 => bitmap & !1,
            _ if self.version < 32 => (1u32 << self.version).wrapping_sub(1) << 1,
            _ => !1,
        }
    }

    /// Returns the highest version that is also in `ours`, a bitmap.
    pub fn negotiate(&self, ours: u32) -> Option<u8> {
        highest(self.versions() & ours)
    }

    /// Decodes a hello. Like Open vSwitch, it never refuses, and ignores
    /// unknown elements.
    pub(crate) fn decode(version: u8, body: &[u8]) -> Self {
        let mut bitmap = None;
        let mut reader = Reader::new(body);
        while let (Ok(kind), Ok(length)) = (reader.u16(), reader.u16()) {
            let length = usize::from(length);
            let Some(body_length) = length.checked_sub(4) else {
                break;
            };
            let Ok(element) = reader.bytes(body_length) else {
                break;
            };
            if reader.skip(padded(length) - length).is_err() {
                break;
            }
            if kind == VERSION_BITMAP && body_length % 4 == 0 {
                if let Ok(word) = Reader::new(element).u32() {
                    bitmap = Some(word);
                }
            }
        }
        Self { version, bitmap }
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        if let Some(bitmap) = self.bitmap {
            out.put_u16(VERSION_BITMAP);
            out.put_u16(8);
            out.put_u32(bitmap);
        }
    }
}

fn highest(bitmap: u32) -> Option<u8> {
    u8::try_from(bitmap.checked_ilog2()?).ok()
}

/// `ofp_switch_features`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// MAC address and 16 bits of the implementer's choice.
    pub datapath_id: u64,
    /// Packets the switch can buffer.
    pub n_buffers: u32,
    /// Tables.
    pub n_tables: u8,
    /// 0 for the main connection.
    pub auxiliary_id: u8,
    /// `ofp_capabilities`.
    pub capabilities: u32,
    /// Zero.
    pub reserved: u32,
}

impl Features {
    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let datapath_id = reader.u64()?;
        let n_buffers = reader.u32()?;
        let [n_tables, auxiliary_id, _, _] = reader.array()?;
        Ok(Self {
            datapath_id,
            n_buffers,
            n_tables,
            auxiliary_id,
            capabilities: reader.u32()?,
            reserved: reader.u32()?,
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.datapath_id);
        out.put_u32(self.n_buffers);
        out.put(&[self.n_tables, self.auxiliary_id, 0, 0]);
        out.put_u32(self.capabilities);
        out.put_u32(self.reserved);
    }
}

/// `ofp_switch_config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// The treatment of IP fragments.
    pub flags: u16,
    /// Bytes of a packet that a table miss sends.
    pub miss_send_len: u16,
}

impl SwitchConfig {
    /// `OFPC_FRAG_MASK`.
    pub const FRAGMENTS: u16 = 3;
    /// `OFPC_FRAG_REASM`.
    pub const REASSEMBLE: u16 = 2;
    /// `OFPC_INVALID_TTL_TO_CONTROLLER`, before OpenFlow 1.3: packets whose TTL expires go to the controller.
    pub const INVALID_TTL_TO_CONTROLLER: u16 = 4;

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        Ok(Self {
            flags: reader.u16()?,
            miss_send_len: reader.u16()?,
        })
    }

    /// Decodes that of a request (`ofputil_decode_set_config`).
    pub(crate) fn decode_request(body: &[u8]) -> Result<Self, Refusal> {
        Self::decode_known(body, Self::FRAGMENTS)
    }

    /// Decodes that of a request in OpenFlow 1.0.
    pub(crate) fn decode_request10(body: &[u8]) -> Result<Self, Refusal> {
        Self::decode_known(body, Self::FRAGMENTS | Self::INVALID_TTL_TO_CONTROLLER)
    }

    fn decode_known(body: &[u8], known: u16) -> Result<Self, Refusal> {
        let config = Self::decode(body)?;
        if config.flags & !known != 0 {
            return Err(Refusal::new(
                ErrorCode::SWITCH_CONFIG_FAILED_BAD_FLAGS,
                format!("switch configuration flags {:#x}", config.flags),
            ));
        }
        Ok(config)
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.flags);
        out.put_u16(self.miss_send_len);
    }
}

/// `ofp_role_request`, and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// One of the constants.
    pub role: u32,
    /// Generation id of the master election; all ones in a reply: none.
    pub generation_id: u64,
}

impl Role {
    /// `OFPCR_ROLE_NOCHANGE`.
    pub const NO_CHANGE: u32 = 0;
    /// `OFPCR_ROLE_EQUAL`.
    pub const EQUAL: u32 = 1;
    /// `OFPCR_ROLE_MASTER`.
    pub const MASTER: u32 = 2;
    /// `OFPCR_ROLE_SLAVE`.
    pub const SLAVE: u32 = 3;

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let role = reader.u32()?;
        reader.skip(4)?;
        let generation_id = reader.u64()?;
        if role > Self::SLAVE {
            return Err(Refusal::new(
                ErrorCode::ROLE_REQUEST_FAILED_BAD_ROLE,
                format!("role {role}"),
            ));
        }
        Ok(Self {
            role,
            generation_id,
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.role);
        out.zeros(4);
        out.put_u64(self.generation_id);
    }
}

/// `ofp_async_config`: per message kind a mask of reasons, first for a master
/// or equal controller, then for a slave. OpenFlow 1.3 carries the first three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct AsyncMasks {
    pub packet_in: [u32; 2],
    pub port_status: [u32; 2],
    pub flow_removed: [u32; 2],
    pub role_status: [u32; 2],
    pub table_status: [u32; 2],
    pub request_forward: [u32; 2],
}

impl AsyncMasks {
    /// No messages at all.
    pub const NONE: Self = Self {
        packet_in: [0; 2],
        port_status: [0; 2],
        flow_removed: [0; 2],
        role_status: [0; 2],
        table_status: [0; 2],
        request_forward: [0; 2],
    };

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        Ok(Self {
            packet_in: [reader.u32()?, reader.u32()?],
            port_status: [reader.u32()?, reader.u32()?],
            flow_removed: [reader.u32()?, reader.u32()?],
            ..Self::NONE
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        for mask in [self.packet_in, self.port_status, self.flow_removed] {
            out.put_u32(mask[0]);
            out.put_u32(mask[1]);
        }
    }
}

/// `ofp_table_mod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableMod {
    /// Table, or `ALL_TABLES`.
    pub table_id: u8,
    /// OpenFlow 1.3 defines no bits; Open vSwitch accepts those of 1.1.
    pub config: u32,
}

impl TableMod {
    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let table_id = reader.u8()?;
        reader.skip(3)?;
        Ok(Self {
            table_id,
            config: reader.u32()?,
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put(&[self.table_id, 0, 0, 0]);
        out.put_u32(self.config);
    }
}

/// `ofp_experimenter_header`: vendor, subtype, and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experimenter {
    /// The vendor.
    pub vendor: u32,
    /// The vendor's subtype.
    pub subtype: u32,
    /// The body.
    pub body: Box<[u8]>,
}

impl Experimenter {
    pub(crate) fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        Ok(Self {
            vendor: reader.u32()?,
            subtype: reader.u32()?,
            body: reader.rest().into(),
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.vendor);
        out.put_u32(self.subtype);
        out.put(&self.body);
    }
}

/// `ofp_error_msg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    /// Type and code.
    pub error: ErrorCode,
    /// The experimenter, for type 0xffff.
    pub experimenter: Option<u32>,
    /// The start of the refused message, or a text for HELLO_FAILED.
    pub data: Box<[u8]>,
}

impl ErrorMessage {
    /// Creates an error about `offending`, a whole message or its start.
    pub fn new(error: ErrorCode, offending: &[u8]) -> Self {
        Self {
            error,
            experimenter: error.experimenter(),
            data: offending.into(),
        }
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let error = ErrorCode {
            kind: reader.u16()?,
            code: reader.u16()?,
        };
        let experimenter = match error.kind {
            EXPERIMENTER_ERROR => Some(reader.u32()?),
            _ => None,
        };
        Ok(Self {
            error,
            experimenter,
            data: reader.rest().into(),
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.error.kind);
        out.put_u16(self.error.code);
        if let Some(experimenter) = self.experimenter.or(self.error.experimenter()) {
            if self.error.kind == EXPERIMENTER_ERROR {
                out.put_u32(experimenter);
            }
        }
        out.put(&self.data);
    }
}

/// Returns the version of an error about `offending`: that of the message
/// itself, which may be another one than the connection's; 1 if Open vSwitch
/// does not know it (`ofperr_encode_msg__`).
fn error_version(offending: &[u8]) -> u8 {
    match offending.first() {
        None => VERSION,
        Some(version @ 1..=6) => *version,
        Some(_) => 1,
    }
}

/// Encodes the error for a peer whose HELLO offers none of our versions. As in
/// Open vSwitch (`ofperr_encode_hello`), it has the highest version that the
/// peer offers.
pub fn encode_hello_failed(hello: &Hello, text: &str) -> Vec<u8> {
    let version = highest(hello.versions()).unwrap_or_default();
    let mut frame = encode_error(0, ErrorCode::HELLO_FAILED_INCOMPATIBLE, text.as_bytes());
    if let Some(slot) = frame.first_mut() {
        *slot = error_version(&[version]);
    }
    frame
}

/// Encodes an error message about `offending`. As in Open vSwitch
/// (`ofperr_encode_msg__`), it has the version of the offending message, and
/// carries the whole of it, truncated only at a message's limit of 65,535
/// bytes.
pub fn encode_error(xid: u32, error: ErrorCode, offending: &[u8]) -> Vec<u8> {
    let version = error_version(offending);
    let mut out = vec![version, kind::ERROR, 0, 0];
    out.put_u32(xid);
    match version {
        VERSION_10 => put_error(error, &mut out),
        _ => {
            let error = match version {
                VERSION_15.. => error_15(error),
                VERSION_14 => error_14(error_13(error)),
                _ => error_13(error),
            };
            out.put_u16(error.kind);
            out.put_u16(error.code);
            if let Some(experimenter) = error.experimenter() {
                out.put_u32(experimenter);
            }
        }
    }
    let kept = usize::from(u16::MAX) - out.len();
    out.extend(offending.iter().take(kept));
    patch_length(&mut out, 0, 2);
    out
}
