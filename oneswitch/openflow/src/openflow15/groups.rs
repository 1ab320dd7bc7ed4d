//! Groups: OpenFlow 1.5 numbers buckets, and has properties in place of fields
//! (lib/ofp-group.c). Nicira's messages of OpenFlow 1.0 are the same but for the actions.

use crate::action::{Actions, Strictness};
use crate::action_check::check;
use crate::error::{ErrorCode, Refusal};
use crate::group::{bucket_no, group_no, group_type, Bucket, Buckets, GroupMod, GroupModCommand};
use crate::multipart::GroupDesc;
use crate::port::{is_representable, port_no};
use crate::properties::{bad_content, unknown, Properties, EXPERIMENTER};
use crate::selection::{self, Selection};
use crate::wire::{patch_length, patch_u16, u32_at, Put, Reader};

use super::actions;

/// How a version writes the parts of a group that differ.
#[derive(Clone, Copy)]
pub(crate) struct Spelling {
    /// Checks actions, and returns those of OpenFlow 1.3.
    pub(crate) read: fn(&[u8]) -> Result<Vec<u8>, Refusal>,
    /// Returns the actions of the version.
    pub(crate) write: fn(Actions<'_>) -> Vec<u8>,
    /// Returns the way to select buckets.
    pub(crate) write_selection: fn(&Selection) -> Vec<u8>,
}

impl Spelling {
    /// That of OpenFlow 1.5.
    pub(super) const OPENFLOW15: Self = Self {
        read: |list| {
            check(list, Strictness::Request15)?;
            actions::to_13(list)
        },
        write: |list| actions::to_15(list.as_bytes()),
        write_selection: |selection| selection.as_bytes().to_vec(),
    };
}

/// Properties of buckets.
mod property {
    pub const WEIGHT: u16 = 0;
    pub const WATCH_PORT: u16 = 1;
    pub const WATCH_GROUP: u16 = 2;
}

/// Bytes of `ofp15_bucket`.
const BUCKET_HEADER: usize = 8;

fn refuse<T>(error: ErrorCode, detail: &'static str) -> Result<T, Refusal> {
    Err(Refusal::new(error, detail))
}

/// Decodes the body of a group-mod (`ofputil_pull_ofp15_group_mod`).
pub(crate) fn decode(body: &[u8], spelling: Spelling) -> Result<GroupMod, Refusal> {
    let mut reader = Reader::new(body);
    let number = reader.u16()?;
    let [group_type, _] = reader.array()?;
    let group_id = reader.u32()?;
    let length = usize::from(reader.u16()?);
    reader.skip(2)?;
    let bucket = reader.u32()?;
    let command = GroupModCommand::from_wire(number, bucket);
    let may_be = match command {
        Some(GroupModCommand::InsertBucket(id)) => id != bucket_no::ALL,
        Some(GroupModCommand::RemoveBucket(_)) => true,
        _ => bucket == bucket_no::ALL,
    };
    let is_number = bucket <= bucket_no::MAX || bucket >= bucket_no::FIRST;
    if !may_be || !is_number {
        return refuse(ErrorCode::GROUP_MOD_FAILED_BAD_BUCKET, "number of a bucket");
    }
    if length > reader.len() {
        return refuse(
            ErrorCode::BAD_REQUEST_BAD_LEN,
            "buckets longer than the message",
        );
    }
    let buckets = buckets(reader.bytes(length)?, group_type, spelling)?;
    let selection = selection(reader.rest(), group_type, command)?;
    let message = GroupMod {
        command: GroupModCommand::Delete,
        group_type,
        group_id,
        buckets,
        selection,
    };
    message.checked(number, bucket)
}

/// `ofputil_pull_ofp15_buckets`.
fn buckets(list: &[u8], group_type: u8, spelling: Spelling) -> Result<Buckets, Refusal> {
    const BAD: ErrorCode = ErrorCode::GROUP_MOD_FAILED_BAD_BUCKET;
    let mut reader = Reader::new(list);
    let mut read: Vec<(Bucket<'_>, Vec<u8>)> = Vec::new();
    while !reader.is_empty() {
        let whole = reader.peek();
        let short = |_| Refusal::new(BAD, "buckets end with leftover bytes");
        let length = usize::from(reader.u16().map_err(short)?);
        let actions_length = usize::from(reader.u16().map_err(short)?);
        let id = reader.u32().map_err(short)?;
        let Some(content) = whole.get(BUCKET_HEADER..length) else {
            return refuse(BAD, "bucket with a wrong length");
        };
        let Some((list, properties)) = content.split_at_checked(actions_length) else {
            return refuse(BAD, "bucket shorter than its actions");
        };
        reader.skip(content.len())?;
        if actions_length % 8 != 0 {
            return refuse(
                ErrorCode::BAD_REQUEST_BAD_LEN,
                "actions not padded to 8 bytes",
            );
        }
        let list = (spelling.read)(list)?;
        let bucket = watched(id, properties, group_type)?;
        if id > bucket_no::MAX {
            return refuse(BAD, "number of a bucket");
        }
        read.push((bucket, list));
    }
    let mut ids: Vec<u32> = read.iter().map(|(bucket, _)| bucket.id).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair.first() == pair.last()) {
        return refuse(BAD, "two buckets with one number");
    }
    Ok(Buckets::with_ids(read.iter().map(|(bucket, list)| {
        Bucket {
            actions: Actions::trusted(list, 0),
            ..*bucket
        }
    })))
}

/// Reads the properties of a bucket, whose actions come later.
fn watched(id: u32, properties: &[u8], group_type: u8) -> Result<Bucket<'static>, Refusal> {
    let mut bucket = Bucket {
        id,
        weight: (group_type == group_type::SELECT).into(),
        watch_port: port_no::ANY,
        watch_group: group_no::ANY,
        actions: Actions::trusted(&[], 0),
    };
    for each in Properties::new(properties) {
        let (kind, content) = each?;
        let number = || {
            let four = <[u8; 4]>::try_from(content).map_err(|_| bad_content(kind, content))?;
            Ok::<u32, Refusal>(u32::from_be_bytes(four))
        };
        match kind {
            property::WEIGHT => {
                let two = content
                    .first_chunk()
                    .ok_or_else(|| bad_content(kind, content))?;
                bucket.weight = u16::from_be_bytes(*two);
            }
            property::WATCH_PORT => bucket.watch_port = number()?,
            property::WATCH_GROUP => bucket.watch_group = number()?,
            _ => return Err(unknown(kind)),
        }
    }
    match is_representable(bucket.watch_port) {
        true => Ok(bucket),
        false => refuse(ErrorCode::GROUP_MOD_FAILED_BAD_WATCH, "watched port"),
    }
}

/// Reads the properties of a group (`parse_ofp15_group_properties`). The only one that
/// Open vSwitch has is the way to select buckets.
fn selection(
    list: &[u8],
    group_type: u8,
    command: Option<GroupModCommand>,
) -> Result<Option<Selection>, Refusal> {
    let mut selection = None;
    for property in Properties::new(list) {
        let (kind, content) = property?;
        let is_known = kind == EXPERIMENTER
            && u32_at(content, 0).is_some_and(|vendor| selection::NETRONOME.contains(&vendor))
            && u32_at(content, 4) == Some(selection::METHOD);
        if !is_known {
            return Err(unknown(kind));
        }
        selection = Some(selection_of(content, group_type, command)?);
    }
    Ok(selection)
}

/// Checks where a group may have the property, and reads it.
fn selection_of(
    content: &[u8],
    group_type: u8,
    command: Option<GroupModCommand>,
) -> Result<Selection, Refusal> {
    use GroupModCommand::{Add, AddOrModify, Modify};
    const BAD_VALUE: ErrorCode = ErrorCode::TABLE_FEATURES_FAILED_BAD_ARGUMENT;
    match (group_type, command) {
        (group_type::SELECT, Some(Add | Modify | AddOrModify)) => Selection::parse(content),
        (group_type::SELECT, None) => {
            refuse(ErrorCode::GROUP_MOD_FAILED_BAD_COMMAND, "group-mod command")
        }
        (group_type::SELECT, _) => refuse(BAD_VALUE, "a way to select buckets in this command"),
        (group_type::ALL..=group_type::FAST_FAILOVER, _) => {
            refuse(BAD_VALUE, "a way to select buckets in another group")
        }
        _ => refuse(ErrorCode::GROUP_MOD_FAILED_BAD_TYPE, "group type"),
    }
}

/// Encodes the body of a group-mod (`ofputil_encode_ofp15_group_mod`).
pub(crate) fn encode(message: &GroupMod, spelling: Spelling) -> Vec<u8> {
    let mut buckets = Vec::new();
    for bucket in message.buckets.iter() {
        put_bucket(&mut buckets, &bucket, message.group_type, spelling);
    }
    let mut out = Vec::with_capacity(16 + buckets.len());
    out.put_u16(message.command.number());
    out.put(&[message.group_type, 0]);
    out.put_u32(message.group_id);
    out.put_u16(u16::try_from(buckets.len()).unwrap_or(u16::MAX));
    out.zeros(2);
    out.put_u32(message.command.bucket());
    out.put(&buckets);
    put_selection(&mut out, message.selection.as_ref(), spelling);
    out
}

fn put_selection(out: &mut Vec<u8>, selection: Option<&Selection>, spelling: Spelling) {
    out.extend(selection.map(spelling.write_selection).unwrap_or_default());
}

/// Encodes `ofp15_group_desc_stats` (`ofputil_append_ofp15_group_desc_reply`).
pub(crate) fn describe(group: &GroupDesc, spelling: Spelling) -> Vec<u8> {
    /// Where the length of all buckets is.
    const BUCKETS: usize = 8;
    let mut out = vec![0, 0, group.group_type, 0];
    out.put_u32(group.group_id);
    out.zeros(8);
    let start = out.len();
    for bucket in group.buckets.iter() {
        put_bucket(&mut out, &bucket, group.group_type, spelling);
    }
    let length = u16::try_from(out.len() - start).unwrap_or(u16::MAX);
    patch_u16(&mut out, BUCKETS, length);
    put_selection(&mut out, group.selection.as_ref(), spelling);
    patch_length(&mut out, 0, 0);
    out
}

/// `ofputil_put_ofp15_bucket`.
fn put_bucket(out: &mut Vec<u8>, bucket: &Bucket<'_>, group_type: u8, spelling: Spelling) {
    let start = out.len();
    let list = (spelling.write)(bucket.actions);
    out.put_u16(0);
    out.put_u16(u16::try_from(list.len()).unwrap_or(u16::MAX));
    out.put_u32(bucket.id);
    out.put(&list);
    if group_type == group_type::SELECT || bucket.weight != 0 {
        out.put_u16(property::WEIGHT);
        out.put_u16(8);
        out.put_u16(bucket.weight);
        out.zeros(2);
    }
    let watched = [
        (property::WATCH_PORT, bucket.watch_port, port_no::ANY),
        (property::WATCH_GROUP, bucket.watch_group, group_no::ANY),
    ];
    for (kind, number, _) in watched.into_iter().filter(|(_, number, any)| number != any) {
        out.put_u16(kind);
        out.put_u16(8);
        out.put_u32(number);
    }
    patch_length(out, start, 0);
}
