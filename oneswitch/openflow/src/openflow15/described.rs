//! Groups on a connection of OpenFlow 1.5 to a switch: what OpenFlow 1.3 cannot say.

use crate::action::{Actions, Strictness};
use crate::action_check::check;
use crate::error::Refusal;
use crate::group::group_no;
use crate::header::{kind, Header, HEADER_LEN};
use crate::metering::meters_of;
use crate::multipart::multipart_kind;
use crate::properties::Properties;
use crate::selection::Selection;
use crate::wire::{patch_length, u16_at, Put, Reader};
use crate::ErrorCode;

use super::VERSION;

/// `OFPMPF_REPLY_MORE`.
const MORE: u16 = 1;
/// Bytes of a property behind its header before those of a selection.
const SELECTION_HEADER: usize = 8;

/// A group as a switch describes it, without actions other than meters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedGroup {
    /// The group.
    pub group_id: u32,
    /// One of [`crate::group_type`].
    pub group_type: u8,
    /// The numbers of its buckets.
    pub bucket_ids: Vec<u32>,
    /// The meters of each bucket.
    pub meters: Vec<Vec<u32>>,
    /// How it selects them.
    pub selection: Option<Selection>,
}

/// Encodes a request for the descriptions of all groups.
pub fn encode_description_request(xid: u32) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u16(multipart_kind::GROUP_DESC);
    body.zeros(6);
    body.put_u32(group_no::ALL);
    body.zeros(4);
    let mut out = vec![VERSION, kind::MULTIPART_REQUEST, 0, 0];
    out.put_u32(xid);
    out.put(&body);
    patch_length(&mut out, 0, 2);
    out
}

/// Decodes a part of the reply, and whether more follow.
///
/// # Errors
/// It is malformed, or another message.
pub fn decode_descriptions(frame: &[u8]) -> Result<(Vec<DescribedGroup>, bool), Refusal> {
    let is_reply = Header::parse(frame).is_some_and(|h| h.kind == kind::MULTIPART_REPLY);
    let mut reader = Reader::new(frame.get(HEADER_LEN..).unwrap_or_default());
    let (subject, flags) = (reader.u16()?, reader.u16()?);
    reader.skip(4)?;
    if !is_reply || subject != multipart_kind::GROUP_DESC {
        let error = ErrorCode::BAD_REQUEST_BAD_TYPE;
        return Err(Refusal::new(error, "not a description of groups"));
    }
    let mut groups = Vec::new();
    while !reader.is_empty() {
        let length = u16_at(reader.peek(), 0).map_or(0, usize::from);
        groups.push(group(reader.bytes(length.max(1))?)?);
    }
    Ok((groups, flags & MORE != 0))
}

fn group(entry: &[u8]) -> Result<DescribedGroup, Refusal> {
    let mut reader = Reader::new(entry);
    reader.skip(2)?;
    let [group_type, _] = reader.array()?;
    let group_id = reader.u32()?;
    let length = usize::from(reader.u16()?);
    reader.skip(6)?;
    let mut buckets = Reader::new(reader.bytes(length)?);
    let (mut bucket_ids, mut meters) = (Vec::new(), Vec::new());
    while !buckets.is_empty() {
        let length = u16_at(buckets.peek(), 0).map_or(0, usize::from);
        let mut bucket = Reader::new(buckets.bytes(length.max(1))?);
        bucket.skip(2)?;
        let length = usize::from(bucket.u16()?);
        bucket_ids.push(bucket.u32()?);
        let actions = bucket.bytes(length)?;
        check(actions, Strictness::Reply)?;
        meters.push(meters_of(Actions::trusted(actions, 0)));
    }
    let mut selection = None;
    for property in Properties::new(reader.rest()) {
        let (_, content) = property?;
        // It has no other property.
        if content.len() > SELECTION_HEADER {
            selection = Some(Selection::parse(content)?);
        }
    }
    Ok(DescribedGroup {
        group_id,
        group_type,
        bucket_ids,
        meters,
        selection,
    })
}
