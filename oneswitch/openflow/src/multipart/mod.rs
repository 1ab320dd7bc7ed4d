//! Multipart requests and replies (OpenFlow 1.3.5, section 7.3.5).

mod groups;
mod meters;
mod reply;
mod request;
mod stats;

pub use groups::{described_before_15, BucketCounter, GroupDesc, GroupFeatures, GroupStats};
pub use meters::{MeterBandStats, MeterConfig, MeterFeatures, MeterStats};
pub use reply::{encode_multipart_reply, EntryMessages, FlowStatsMessages, MultipartReply};
pub use request::{FlowStatsRequest, MultipartRequest};
pub use stats::{
    FlowStats, IntelPortStats, PortStats, QueueStats, SwitchDesc, TableStats, RFC2819,
};

use crate::error::{ErrorCode, Refusal};
use crate::wire::{Put, Reader};

/// `ofp_multipart_type`.
pub mod multipart_kind {
    #![allow(missing_docs)]
    pub const DESC: u16 = 0;
    pub const FLOW: u16 = 1;
    pub const AGGREGATE: u16 = 2;
    pub const TABLE: u16 = 3;
    pub const PORT_STATS: u16 = 4;
    pub const QUEUE: u16 = 5;
    pub const GROUP: u16 = 6;
    pub const GROUP_DESC: u16 = 7;
    pub const GROUP_FEATURES: u16 = 8;
    pub const METER: u16 = 9;
    pub const METER_CONFIG: u16 = 10;
    pub const METER_FEATURES: u16 = 11;
    pub const TABLE_FEATURES: u16 = 12;
    pub const PORT_DESC: u16 = 13;
    pub const EXPERIMENTER: u16 = 0xffff;
}

/// `OFPMPF_REQ_MORE` and `OFPMPF_REPLY_MORE`.
const MORE: u16 = 1;

/// Bytes before the body: `ofp_header` and `ofp_multipart_request`.
pub(crate) const MULTIPART_HEADER: usize = 16;

/// One message of a multipart request or reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart<B> {
    /// Whether another message with the same xid continues this one.
    pub more: bool,
    /// The content of this message.
    pub body: B,
}

impl<B> Multipart<B> {
    /// The only or the last message.
    pub fn last(body: B) -> Self {
        Self { more: false, body }
    }
}

/// The body of a multipart message.
pub(crate) trait Body: Sized {
    fn kind(&self) -> u16;
    fn pull(kind: u16, reader: &mut Reader<'_>) -> Result<Self, Refusal>;
    fn put(&self, out: &mut Vec<u8>);
}

/// An entry of a reply.
pub(crate) trait Entry: Sized {
    fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal>;
    fn put(&self, out: &mut Vec<u8>);

    /// Reads all entries of a message.
    fn pull_all(reader: &mut Reader<'_>) -> Result<Vec<Self>, Refusal> {
        let mut entries = Vec::new();
        while !reader.is_empty() {
            entries.push(Self::pull(reader)?);
        }
        Ok(entries)
    }
}

pub(crate) fn decode<B: Body>(body: &[u8]) -> Result<Multipart<B>, Refusal> {
    let mut reader = Reader::new(body);
    let kind = reader.u16()?;
    let flags = reader.u16()?;
    reader.skip(4)?;
    let body = B::pull(kind, &mut reader)?;
    if !reader.is_empty() {
        return Err(Refusal::new(
            ErrorCode::BAD_REQUEST_BAD_LEN,
            format!("multipart message of type {kind} is too long"),
        ));
    }
    Ok(Multipart {
        more: flags & MORE != 0,
        body,
    })
}

pub(crate) fn put<B: Body>(message: &Multipart<B>, out: &mut Vec<u8>) {
    put_header(out, message.body.kind(), message.more);
    message.body.put(out);
}

fn put_header(out: &mut Vec<u8>, kind: u16, more: bool) {
    out.put_u16(kind);
    out.put_u16(if more { MORE } else { 0 });
    out.zeros(4);
}
