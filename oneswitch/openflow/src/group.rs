//! Groups (OpenFlow 1.3.5, section 7.3.4.2; lib/ofp-group.c).

use crate::action::{Actions, Strictness};
use crate::action_check::check;
use crate::error::{ErrorCode, Refusal};
use crate::header::HEADER_LEN;
use crate::port::{is_representable, port_no};
use crate::selection::Selection;
use crate::wire::{patch_length, u16_at, u32_at, Put, Reader};
use crate::ActionList;

/// Group numbers (`ofp_group`).
pub mod group_no {
    #![allow(missing_docs)]
    pub const MAX: u32 = 0xffff_ff00;
    pub const ALL: u32 = 0xffff_fffc;
    pub const ANY: u32 = 0xffff_ffff;
}

/// `ofp_group_type`.
pub mod group_type {
    #![allow(missing_docs)]
    pub const ALL: u8 = 0;
    pub const SELECT: u8 = 1;
    pub const INDIRECT: u8 = 2;
    pub const FAST_FAILOVER: u8 = 3;
}

/// Numbers of buckets that have none of their own (`ofp15_group_bucket`).
pub mod bucket_no {
    #![allow(missing_docs)]
    pub const MAX: u32 = 0xffff_ff00;
    pub const FIRST: u32 = 0xffff_fffd;
    pub const LAST: u32 = 0xffff_fffe;
    pub const ALL: u32 = 0xffff_ffff;
}

/// Bytes of `ofp_bucket` before its actions.
const BUCKET_HEADER: usize = 16;
/// Where a bucket has its number. Over OpenFlow 1.3 these bytes are padding, which
/// Open vSwitch ignores.
const BUCKET_ID: usize = 12;
/// Where a group-mod tells what else it has, which is padding over OpenFlow 1.3, too:
/// numbers of its buckets, with the place if it inserts or removes buckets; and how
/// the group selects buckets. A deletion can have buckets only then; they mean nothing.
pub(crate) const EXTRAS: usize = HEADER_LEN + 3;
const NUMBERED: u8 = 1;
pub(crate) const SELECTING: u8 = 0xb6;
/// Bytes of the place where buckets are inserted or removed.
const PLACE: usize = 8;
/// Commands on the wire.
const DELETE: u16 = 2;
const INSERT_BUCKET: u16 = 3;
const REMOVE_BUCKET: u16 = 5;

/// The command of a group-mod. The last three are not OpenFlow 1.3, but Open
/// vSwitch 3.1 accepts them in its messages (`ofputil_check_group_mod`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum GroupModCommand {
    Add,
    Modify,
    Delete,
    /// OpenFlow 1.5: inserts buckets behind that one, or at the place that one of
    /// [`bucket_no`] names. Over 1.3 it is `ALL`: before all others.
    InsertBucket(u32),
    /// OpenFlow 1.5: removes that bucket, or one of [`bucket_no`]; over 1.3 `ALL`.
    RemoveBucket(u32),
    /// `ovs-ofctl --may-create mod-group`.
    AddOrModify,
}

impl GroupModCommand {
    pub(crate) fn from_wire(number: u16, bucket: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Add,
            1 => Self::Modify,
            DELETE => Self::Delete,
            INSERT_BUCKET => Self::InsertBucket(bucket),
            REMOVE_BUCKET => Self::RemoveBucket(bucket),
            0x8000 => Self::AddOrModify,
            _ => return None,
        })
    }

    /// Returns the bucket that it names, or `ALL`.
    pub(crate) fn bucket(self) -> u32 {
        match self {
            Self::InsertBucket(bucket) | Self::RemoveBucket(bucket) => bucket,
            _ => bucket_no::ALL,
        }
    }

    /// Returns the number of the command.
    pub fn number(self) -> u16 {
        match self {
            Self::Add => 0,
            Self::Modify => 1,
            Self::Delete => DELETE,
            Self::InsertBucket(_) => INSERT_BUCKET,
            Self::RemoveBucket(_) => REMOVE_BUCKET,
            Self::AddOrModify => 0x8000,
        }
    }
}

/// One bucket.
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'a> {
    /// Its number in OpenFlow 1.5.
    pub id: u32,
    /// Share of a select group.
    pub weight: u16,
    /// Port whose liveness counts, or `port_no::ANY`.
    pub watch_port: u32,
    /// Group whose liveness counts, or `group_no::ANY`.
    pub watch_group: u32,
    /// Offsets count from the first byte of the buckets.
    pub actions: Actions<'a>,
}

/// Raw buckets of a known structure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Buckets(Box<[u8]>);

impl Buckets {
    /// Checks buckets as Open vSwitch checks those of a request.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Refusal> {
        Self::checked(&bytes, Strictness::Request)?;
        Ok(Self(bytes.into_boxed_slice()))
    }

    /// Encodes buckets: weight, watched port and group, actions of each. They are
    /// numbered in order.
    pub fn build<'a>(buckets: impl IntoIterator<Item = (u16, u32, u32, &'a ActionList)>) -> Self {
        let numbered = (0..).zip(buckets);
        Self::with_ids(
            numbered.map(|(id, (weight, watch_port, watch_group, list))| Bucket {
                id,
                weight,
                watch_port,
                watch_group,
                actions: list.as_actions(),
            }),
        )
    }

    /// Encodes buckets with their numbers.
    pub fn with_ids<'a>(buckets: impl IntoIterator<Item = Bucket<'a>>) -> Self {
        let mut bytes = Vec::new();
        for bucket in buckets {
            let start = bytes.len();
            bytes.put_u16(0);
            bytes.put_u16(bucket.weight);
            bytes.put_u32(bucket.watch_port);
            bytes.put_u32(bucket.watch_group);
            bytes.put_u32(bucket.id);
            bytes.put(bucket.actions.as_bytes());
            patch_length(&mut bytes, start, 0);
        }
        Self(bytes.into_boxed_slice())
    }

    /// Numbers the buckets in order, as Open vSwitch does before OpenFlow 1.5.
    fn number(&mut self) {
        let lengths: Vec<usize> = self.iter().map(|b| b.actions.as_bytes().len()).collect();
        let mut start = 0;
        for (id, length) in (0u32..).zip(lengths) {
            let place = self.0.get_mut(start + BUCKET_ID..start + BUCKET_ID + 4);
            if let Some(place) = place {
                place.copy_from_slice(&id.to_be_bytes());
            }
            start += BUCKET_HEADER + length;
        }
    }

    /// Tells whether they have the numbers that earlier versions give them.
    pub fn are_in_order(&self) -> bool {
        (0..)
            .zip(self.iter())
            .all(|(number, bucket)| bucket.id == number)
    }

    pub(crate) fn decode(bytes: &[u8], strictness: Strictness) -> Result<Self, Refusal> {
        Self::checked(bytes, strictness)?;
        Ok(Self(bytes.into()))
    }

    /// `ofputil_pull_ofp11_buckets`.
    fn checked(bytes: &[u8], strictness: Strictness) -> Result<(), Refusal> {
        let bad_bucket =
            |detail: &'static str| Refusal::new(ErrorCode::GROUP_MOD_FAILED_BAD_BUCKET, detail);
        let mut rest = bytes;
        while !rest.is_empty() {
            if rest.len() < BUCKET_HEADER {
                return Err(bad_bucket("buckets end with leftover bytes"));
            }
            let length = usize::from(u16_at(rest, 0).unwrap_or_default());
            if length < BUCKET_HEADER {
                return Err(bad_bucket("bucket shorter than its header"));
            }
            let (bucket, after) = rest
                .split_at_checked(length)
                .ok_or_else(|| bad_bucket("truncated bucket"))?;
            if length % 8 != 0 {
                return Err(Refusal::new(
                    ErrorCode::BAD_REQUEST_BAD_LEN,
                    "bucket not padded to 8 bytes",
                ));
            }
            check(bucket.get(BUCKET_HEADER..).unwrap_or_default(), strictness)?;
            let watch_port = u32_at(bucket, 4).unwrap_or_default();
            if strictness != Strictness::Reply && !is_representable(watch_port) {
                return Err(Refusal::new(
                    ErrorCode::GROUP_MOD_FAILED_BAD_WATCH,
                    format!("watch_port {watch_port:#x}"),
                ));
            }
            rest = after;
        }
        Ok(())
    }

    /// The buckets as on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes, to patch numbers in place; see
    /// [`crate::ActionItem::offset`].
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Tells whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the buckets in order.
    pub fn iter(&self) -> impl Iterator<Item = Bucket<'_>> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            let rest = self.0.get(offset..)?;
            let length = usize::from(u16_at(rest, 0)?).max(BUCKET_HEADER);
            let actions = rest.get(BUCKET_HEADER..length)?;
            let bucket = Bucket {
                id: u32_at(rest, BUCKET_ID)?,
                weight: u16_at(rest, 2)?,
                watch_port: u32_at(rest, 4)?,
                watch_group: u32_at(rest, 8)?,
                actions: Actions::trusted(actions, offset + BUCKET_HEADER),
            };
            offset += length;
            Some(bucket)
        })
    }
}

/// `ofp_group_mod`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMod {
    /// The command.
    pub command: GroupModCommand,
    /// One of [`group_type`].
    pub group_type: u8,
    /// The group; `group_no::ALL` to delete all.
    pub group_id: u32,
    /// Its buckets.
    pub buckets: Buckets,
    /// How it selects them, which only OpenFlow 1.5 can say.
    pub selection: Option<Selection>,
}

impl GroupMod {
    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let (message, command, bucket) = Self::read(body)?;
        message.checked(command, bucket)
    }

    /// Decodes a message that Open vSwitch would write, but not take.
    pub(crate) fn decode_written(body: &[u8]) -> Option<Self> {
        let (message, command, bucket) = Self::read(body).ok()?;
        let command = GroupModCommand::from_wire(command, bucket)?;
        Some(Self { command, ..message })
    }

    /// Tells whether Open vSwitch takes it. It takes more buckets into a group by and
    /// by than in one message.
    pub fn is_takable(&self) -> bool {
        let checked = self.clone();
        checked
            .checked(self.command.number(), self.command.bucket())
            .is_ok()
    }

    /// Tells whether OpenFlow 1.3 cannot say all of it.
    pub fn needs_openflow15(&self) -> bool {
        let names_place = matches!(
            self.command,
            GroupModCommand::InsertBucket(_) | GroupModCommand::RemoveBucket(_)
        ) && self.command.bucket() != bucket_no::ALL;
        let is_plain = self.selection.is_none() && self.buckets.are_in_order();
        if self.command == GroupModCommand::Delete {
            return false;
        }
        names_place || !is_plain || self.buckets.have_meter()
    }

    /// Reads a message without its command, and the numbers of its command and of the bucket that this names.
    fn read(body: &[u8]) -> Result<(Self, u16, u32), Refusal> {
        let mut reader = Reader::new(body);
        let command = reader.u16()?;
        let group_type = reader.u8()?;
        let extras = reader.u8()?;
        let is_selecting = extras & !NUMBERED == SELECTING;
        let is_numbered = extras == NUMBERED || extras == SELECTING | NUMBERED;
        let group_id = reader.u32()?;
        if reader.len() % 8 != 0 {
            return Err(Refusal::new(
                ErrorCode::BAD_REQUEST_BAD_LEN,
                "group-mod is not padded to 8 bytes",
            ));
        }
        let mut bucket = bucket_no::ALL;
        if is_numbered && matches!(command, INSERT_BUCKET | REMOVE_BUCKET) {
            bucket = reader.u32()?;
            reader.skip(4)?;
        }
        let selection = match is_selecting {
            true => Some(Selection::pull(&mut reader)?),
            false => None,
        };
        let mut buckets = Buckets::decode(reader.rest(), Strictness::Request)?;
        if !is_numbered {
            buckets.number();
        }
        if command == DELETE && !buckets.is_empty() && !is_numbered {
            return Err(Refusal::new(
                ErrorCode::GROUP_MOD_FAILED_INVALID_GROUP,
                "deletion with buckets",
            ));
        }
        let message = Self {
            command: GroupModCommand::Delete,
            group_type,
            group_id,
            buckets,
            selection,
        };
        Ok((message, command, bucket))
    }

    /// Sets the command, and checks the message as `ofputil_check_group_mod` does.
    pub(crate) fn checked(mut self, command: u16, bucket: u32) -> Result<Self, Refusal> {
        let Self {
            group_type,
            buckets,
            ..
        } = &self;
        let group_type = *group_type;
        let known = GroupModCommand::from_wire(command, bucket);
        let refuse = |error, detail: &'static str| Err(Refusal::new(error, detail));
        match group_type {
            group_type::INDIRECT
                if known != Some(GroupModCommand::Delete) && buckets.iter().count() != 1 =>
            {
                return refuse(
                    ErrorCode::GROUP_MOD_FAILED_INVALID_GROUP,
                    "indirect group without exactly one bucket",
                );
            }
            group_type::ALL..=group_type::FAST_FAILOVER => {}
            _ => {
                return Err(Refusal::new(
                    ErrorCode::GROUP_MOD_FAILED_BAD_TYPE,
                    format!("group type {group_type}"),
                ))
            }
        }
        let Some(command) = known else {
            return Err(Refusal::new(
                ErrorCode::GROUP_MOD_FAILED_BAD_COMMAND,
                format!("group-mod command {command}"),
            ));
        };
        if matches!(command, GroupModCommand::RemoveBucket(_)) && !buckets.is_empty() {
            return refuse(
                ErrorCode::GROUP_MOD_FAILED_BAD_BUCKET,
                "removal of buckets with buckets",
            );
        }
        for bucket in buckets.iter() {
            let watches = bucket.watch_port != port_no::ANY || bucket.watch_group != group_no::ANY;
            if bucket.weight != 0
                && group_type != group_type::SELECT
                && !matches!(command, GroupModCommand::InsertBucket(_))
            {
                return refuse(
                    ErrorCode::GROUP_MOD_FAILED_INVALID_GROUP,
                    "weight in a group other than select",
                );
            }
            match group_type {
                group_type::ALL | group_type::INDIRECT if watches => {
                    return refuse(
                        ErrorCode::GROUP_MOD_FAILED_WATCH_UNSUPPORTED,
                        "watch in a group other than fast failover",
                    )
                }
                group_type::FAST_FAILOVER if !watches => {
                    return refuse(
                        ErrorCode::GROUP_MOD_FAILED_INVALID_GROUP,
                        "fast-failover bucket without a watch",
                    )
                }
                _ => {}
            }
        }
        self.command = command;
        Ok(self)
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let names_place = matches!(self.command.number(), INSERT_BUCKET | REMOVE_BUCKET);
        let is_deletion = self.command == GroupModCommand::Delete && !self.buckets.is_empty();
        let is_numbered = names_place || is_deletion || !self.buckets.are_in_order();
        let mut extras = u8::from(is_numbered) * NUMBERED;
        if self.selection.is_some() {
            extras |= SELECTING;
        }
        out.put_u16(self.command.number());
        out.put(&[self.group_type, extras]);
        out.put_u32(self.group_id);
        if names_place {
            out.put_u32(self.command.bucket());
            out.zeros(4);
        }
        if let Some(selection) = &self.selection {
            out.put(selection.as_bytes());
        }
        out.put(self.buckets.as_bytes());
    }
}

/// Returns a whole group-mod without what only OpenFlow 1.5 has, for a peer of an
/// earlier version. Open vSwitch inserts buckets then before all others, and removes all.
pub fn before_15(group_mod: &[u8]) -> Vec<u8> {
    /// Where the buckets are.
    const BUCKETS: usize = HEADER_LEN + 8;
    let (head, mut rest) = group_mod.split_at(BUCKETS.min(group_mod.len()));
    let command = u16_at(head, HEADER_LEN);
    let mut out = head.to_vec();
    if let Some(extras) = out.get_mut(EXTRAS) {
        let extras = std::mem::take(extras);
        if extras & NUMBERED != 0 && matches!(command, Some(INSERT_BUCKET | REMOVE_BUCKET)) {
            rest = rest.get(PLACE..).unwrap_or_default();
        }
        if extras & !NUMBERED == SELECTING {
            rest = Selection::behind(rest);
        }
    }
    match Buckets::decode(rest, Strictness::Request) {
        Ok(buckets) if buckets.have_meter() => out.put(buckets.before_15().as_bytes()),
        _ => out.put(rest),
    }
    clear_ids(out.get_mut(BUCKETS..).unwrap_or_default());
    patch_length(&mut out, 0, 2);
    out
}

/// Removes the numbers of buckets.
pub(crate) fn clear_ids(buckets: &mut [u8]) {
    let mut start = 0;
    while let Some(length) = u16_at(buckets, start).map(usize::from) {
        if let Some(id) = buckets.get_mut(start + BUCKET_ID..start + BUCKET_ID + 4) {
            id.fill(0);
        }
        start += length.max(BUCKET_HEADER);
    }
}
