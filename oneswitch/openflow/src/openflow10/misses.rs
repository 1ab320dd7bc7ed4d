//! Packets that meet no rule. Open vSwitch sends them only to peers that speak
//! OpenFlow 1.2 or earlier (`connmgr_wants_packet_in_on_miss`).

use crate::error::{ErrorCode, Refusal};
use crate::extension::subtype;
use crate::header::{kind as k, Header, HEADER_LEN};
use crate::oxm::Match;
use crate::packet::PacketIn;
use crate::session::SwitchConfig;
use crate::wire::{padded, Put, Reader};
use crate::{NO_BUFFER, NX_VENDOR};

use super::frames::message;
use super::notices::{self, property};

/// Returns the messages that ask an Open vSwitch for packets that meet no rule,
/// and for nothing else.
pub fn subscribe_to_misses() -> Vec<u8> {
    /// `nx_packet_in_format`: the only one with all metadata.
    const NXT_PACKET_IN2: u32 = 2;
    let mut config = Vec::new();
    SwitchConfig {
        // Open vSwitch cannot do this: it keeps the bridge's setting.
        flags: SwitchConfig::REASSEMBLE,
        miss_send_len: u16::MAX,
    }
    .put(&mut config);
    let mut format = notices::start(subtype::SET_PACKET_IN_FORMAT);
    format.put_u32(NXT_PACKET_IN2);
    let mut masks = notices::start(subtype::SET_ASYNC_CONFIG);
    masks.put_u32(1 << PacketIn::NO_MATCH);
    masks.zeros(20);
    [
        message(k::EXPERIMENTER, 1, &format),
        message(k::EXPERIMENTER, 2, &masks),
        message(k::SET_CONFIG, 3, &config),
    ]
    .concat()
}

/// Decodes a message on a connection with that subscription; `None` if it is
/// about a packet that met a rule, or something else.
pub fn decode_miss(frame: &[u8]) -> Result<Option<PacketIn>, Refusal> {
    let header = Header::parse(frame);
    let mut reader = Reader::new(frame.get(HEADER_LEN..).unwrap_or_default());
    match header.map(|header| header.kind) {
        Some(k::ERROR) => Err(Refusal::new(
            ErrorCode::BAD_REQUEST_BAD_TYPE,
            format!("error {:02x?}", reader.rest()),
        )),
        Some(k::EXPERIMENTER)
            if (reader.u32()?, reader.u32()?) == (NX_VENDOR, subtype::PACKET_IN2) =>
        {
            packet_in2(reader.rest())
        }
        _ => Ok(None),
    }
}

fn packet_in2(properties: &[u8]) -> Result<Option<PacketIn>, Refusal> {
    let mut packet = PacketIn {
        buffer_id: NO_BUFFER,
        total_len: 0,
        reason: PacketIn::IMPLICIT_MISS,
        table_id: 0,
        cookie: u64::MAX,
        matching: Match::any(),
        data: Box::default(),
    };
    let mut rest = properties;
    while !rest.is_empty() {
        let mut reader = Reader::new(rest);
        let (kind, length) = (reader.u16()?, usize::from(reader.u16()?));
        let bad_length = || {
            let detail = format!("property {kind} of {length} bytes");
            Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, detail)
        };
        let content = rest.get(4..length).ok_or_else(bad_length)?;
        rest = rest.get(padded(length)..).unwrap_or_default();
        let mut content_reader = Reader::new(content);
        match kind {
            property::PACKET => {
                packet.data = content.into();
                packet.total_len = u16::try_from(content.len()).unwrap_or(u16::MAX);
            }
            property::FULL_LENGTH => {
                packet.total_len = u16::try_from(content_reader.u32()?).unwrap_or(u16::MAX);
            }
            property::TABLE_ID => packet.table_id = content_reader.u8()?,
            property::COOKIE => {
                content_reader.skip(4)?;
                packet.cookie = content_reader.u64()?;
            }
            // Rules that send to the controller have the other reasons.
            property::REASON if content_reader.u8()? != PacketIn::NO_MATCH => return Ok(None),
            property::METADATA => packet.matching = Match::from_oxm(content.to_vec())?,
            _ => {}
        }
    }
    Ok(Some(packet))
}
