//! Packet-ins and packet-outs (OpenFlow 1.3.5, sections 7.3.7, 7.4.1;
//! lib/ofp-packet.c).

use crate::action::ActionList;
use crate::error::{ErrorCode, Refusal};
use crate::header::{VERSION_10, VERSION_14};
use crate::oxm::Match;
use crate::port::{is_ingress, is_representable};
use crate::wire::{Put, Reader};

/// `ofp_packet_out`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// A buffered packet, or `NO_BUFFER`.
    pub buffer_id: u32,
    /// The alleged ingress port, or `CONTROLLER` or `ANY`.
    pub in_port: u32,
    /// The type of a packet without an Ethernet header, which only OpenFlow 1.5 has, or
    /// zero. OpenFlow 1.3 has padding there.
    pub packet_type: u32,
    /// The actions.
    pub actions: ActionList,
    /// The frame, when it is not buffered.
    pub data: Box<[u8]>,
}

impl PacketOut {
    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let buffer_id = reader.u32()?;
        let in_port = reader.u32()?;
        let length = usize::from(reader.u16()?);
        let packet_type = reader.u32()?;
        reader.skip(2)?;
        if !is_representable(in_port) {
            return Err(Refusal::new(
                ErrorCode::BAD_ACTION_BAD_OUT_PORT,
                format!("in_port {in_port:#x}"),
            ));
        }
        if length % 8 != 0 || length > reader.len() {
            return Err(Refusal::new(
                ErrorCode::BAD_REQUEST_BAD_LEN,
                format!("packet-out with {length} bytes of actions"),
            ));
        }
        let actions = ActionList::from_bytes(reader.bytes(length)?.to_vec())?;
        if !is_ingress(in_port) {
            return Err(Refusal::new(
                ErrorCode::BAD_REQUEST_BAD_PORT,
                format!("in_port {in_port:#x}"),
            ));
        }
        Ok(Self {
            buffer_id,
            in_port,
            packet_type,
            actions,
            data: reader.rest().into(),
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let actions = self.actions.as_bytes();
        out.reserve(16 + actions.len() + self.data.len());
        out.put_u32(self.buffer_id);
        out.put_u32(self.in_port);
        // Above 65,535 the frame as a whole is refused.
        out.put_u16(u16::try_from(actions.len()).unwrap_or(u16::MAX));
        out.put_u32(self.packet_type);
        out.zeros(2);
        out.put(actions);
        out.put(&self.data);
    }
}

/// `ofp_packet_in`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// The switch's buffer of the packet, or `NO_BUFFER`.
    pub buffer_id: u32,
    /// Bytes of the whole packet; `data` may be truncated.
    pub total_len: u16,
    /// One of the constants.
    pub reason: u8,
    /// The table that sent it.
    pub table_id: u8,
    /// The cookie of the rule that sent it; all ones: none.
    pub cookie: u64,
    /// Ingress port and other metadata.
    pub matching: Match,
    /// The frame.
    pub data: Box<[u8]>,
}

impl PacketIn {
    /// `OFPR_NO_MATCH`.
    pub const NO_MATCH: u8 = 0;
    /// `OFPR_ACTION`.
    pub const ACTION: u8 = 1;
    /// `OFPR_INVALID_TTL`.
    pub const INVALID_TTL: u8 = 2;
    /// `OFPR_ACTION_SET`, the first of the reasons that OpenFlow 1.4 tells from
    /// ACTION. The others are GROUP and PACKET_OUT.
    pub const ACTION_SET: u8 = 3;
    /// `OFPR_PACKET_OUT`.
    pub const PACKET_OUT: u8 = 5;
    /// `OFPR_IMPLICIT_MISS`: a miss without a rule for it. Open vSwitch has this
    /// reason internally; only peers before OpenFlow 1.3 get such packets.
    pub const IMPLICIT_MISS: u8 = 7;

    /// Converts a reason for a peer of a version (`encode_packet_in_reason`):
    /// before OpenFlow 1.3, a rule without a match is one like any other.
    pub fn reason_in(version: u8, reason: u8) -> u8 {
        match reason {
            Self::NO_MATCH if version == VERSION_10 => Self::ACTION,
            Self::IMPLICIT_MISS => Self::NO_MATCH,
            Self::ACTION_SET..=Self::PACKET_OUT if version < VERSION_14 => Self::ACTION,
            other => other,
        }
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let buffer_id = reader.u32()?;
        let total_len = reader.u16()?;
        let [reason, table_id] = reader.array()?;
        let cookie = reader.u64()?;
        let matching = Match::pull(&mut reader)?;
        reader.skip(2)?;
        Ok(Self {
            buffer_id,
            total_len,
            reason,
            table_id,
            cookie,
            matching,
            data: reader.rest().into(),
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.reserve(18 + self.matching.wire_len() + self.data.len());
        out.put_u32(self.buffer_id);
        out.put_u16(self.total_len);
        out.put(&[self.reason, self.table_id]);
        out.put_u64(self.cookie);
        self.matching.put(out);
        out.zeros(2);
        out.put(&self.data);
    }
}
