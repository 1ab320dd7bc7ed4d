//! Replies about groups.

use super::stats::sized_entry;
use super::{multipart_kind, Entry, MULTIPART_HEADER};
use crate::action::Strictness;
use crate::error::Refusal;
use crate::group::{clear_ids, Buckets, SELECTING};
use crate::header::{kind, HEADER_LEN};
use crate::selection::Selection;
use crate::wire::{patch_length, u16_at, Put, Reader};

/// `ofp_bucket_counter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct BucketCounter {
    pub packet_count: u64,
    pub byte_count: u64,
}

/// `ofp_group_stats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// The group.
    pub group_id: u32,
    /// Rules and groups that use it.
    pub ref_count: u32,
    /// Packets it processed.
    pub packet_count: u64,
    /// Their bytes.
    pub byte_count: u64,
    /// Lifetime in seconds.
    pub duration_sec: u32,
    /// Nanoseconds beyond them.
    pub duration_nsec: u32,
    /// The counters of each bucket.
    pub buckets: Vec<BucketCounter>,
}

impl Entry for GroupStats {
    fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        let mut entry = sized_entry(reader)?;
        entry.skip(4)?;
        let group_id = entry.u32()?;
        let ref_count = entry.u32()?;
        entry.skip(4)?;
        let packet_count = entry.u64()?;
        let byte_count = entry.u64()?;
        let duration_sec = entry.u32()?;
        let duration_nsec = entry.u32()?;
        let mut buckets = Vec::with_capacity(entry.len() / 16);
        while !entry.is_empty() {
            buckets.push(BucketCounter {
                packet_count: entry.u64()?,
                byte_count: entry.u64()?,
            });
        }
        Ok(Self {
            group_id,
            ref_count,
            packet_count,
            byte_count,
            duration_sec,
            duration_nsec,
            buckets,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.zeros(4);
        out.put_u32(self.group_id);
        out.put_u32(self.ref_count);
        out.zeros(4);
        out.put_u64(self.packet_count);
        out.put_u64(self.byte_count);
        out.put_u32(self.duration_sec);
        out.put_u32(self.duration_nsec);
        for bucket in &self.buckets {
            out.put_u64(bucket.packet_count);
            out.put_u64(bucket.byte_count);
        }
        patch_length(out, start, 0);
    }
}

/// `ofp_group_desc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDesc {
    /// One of `group_type`.
    pub group_type: u8,
    /// The group.
    pub group_id: u32,
    /// Its buckets.
    pub buckets: Buckets,
    /// How it selects them, which only OpenFlow 1.5 can say.
    pub selection: Option<Selection>,
}

impl Entry for GroupDesc {
    fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        let mut entry = sized_entry(reader)?;
        entry.skip(2)?;
        let [group_type, extras] = entry.array()?;
        let group_id = entry.u32()?;
        let selection = match extras == SELECTING {
            true => Some(Selection::pull(&mut entry)?),
            false => None,
        };
        Ok(Self {
            group_type,
            group_id,
            selection,
            buckets: Buckets::decode(entry.rest(), Strictness::Reply)?.gathered(),
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.zeros(2);
        let extras = self.selection.as_ref().map_or(0, |_| SELECTING);
        out.put(&[self.group_type, extras]);
        out.put_u32(self.group_id);
        out.put(self.selection.as_ref().map_or(&[], Selection::as_bytes));
        out.put(self.buckets.before_15().as_bytes());
        patch_length(out, start, 0);
    }
}

/// `ofp_group_features`; arrays are indexed by group type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupFeatures {
    /// Bitmap of group types.
    pub types: u32,
    /// `ofp_group_capabilities`.
    pub capabilities: u32,
    /// Maximum number of groups per type.
    pub max_groups: [u32; 4],
    /// Bitmaps of action types.
    pub actions: [u32; 4],
}

impl GroupFeatures {
    pub(crate) fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        let types = reader.u32()?;
        let capabilities = reader.u32()?;
        let mut features = Self {
            types,
            capabilities,
            max_groups: [0; 4],
            actions: [0; 4],
        };
        for slot in features.max_groups.iter_mut().chain(&mut features.actions) {
            *slot = reader.u32()?;
        }
        Ok(features)
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.types);
        out.put_u32(self.capabilities);
        for number in self.max_groups.iter().chain(&self.actions) {
            out.put_u32(*number);
        }
    }
}

/// Returns a reply with descriptions of groups for a peer before OpenFlow 1.5,
/// without what only that can say; `None`: it is another message.
pub fn described_before_15(frame: &[u8]) -> Option<Vec<u8>> {
    /// Bytes of `ofp_group_desc` before its buckets, and where it tells what else
    /// there is.
    const GROUP: usize = 8;
    const EXTRAS: usize = 3;
    let kinds = (frame.get(1), u16_at(frame, HEADER_LEN));
    if kinds
        != (
            Some(&kind::MULTIPART_REPLY),
            Some(multipart_kind::GROUP_DESC),
        )
    {
        return None;
    }
    let (head, mut rest) = frame.split_at_checked(MULTIPART_HEADER)?;
    let mut out = head.to_vec();
    while let Some(length) = u16_at(rest, 0).map(usize::from) {
        let (entry, others) = rest.split_at_checked(length.max(GROUP))?;
        let (group, mut buckets) = entry.split_at(GROUP);
        let start = out.len();
        out.put(group);
        if let Some(extras) = out.get_mut(start + EXTRAS) {
            if std::mem::take(extras) == SELECTING {
                buckets = Selection::behind(buckets);
            }
        }
        out.put(buckets);
        clear_ids(out.get_mut(start + GROUP..).unwrap_or_default());
        patch_length(&mut out, start, 0);
        rest = others;
    }
    patch_length(&mut out, 0, 2);
    Some(out)
}
