//! Groups (OpenFlow 1.3.5, section 7.3.4.2; lib/ofp-group.c).

use crate::action::{Actions, Strictness};
use crate::action_check::check;
use crate::error::{ErrorCode, Refusal};
use crate::port::{is_representable, port_no};
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

/// Bytes of `ofp_bucket` before its actions.
const BUCKET_HEADER: usize = 16;

/// The command of a group-mod. The last three are not OpenFlow 1.3, but Open
/// vSwitch 3.1 accepts them in its messages (`ofputil_check_group_mod`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum GroupModCommand {
    Add = 0,
    Modify = 1,
    Delete = 2,
    /// OpenFlow 1.5; over 1.3 only a group without buckets accepts any, because
    /// each message numbers buckets from 0.
    InsertBucket = 3,
    /// OpenFlow 1.5; over 1.3 this removes all buckets.
    RemoveBucket = 5,
    /// `ovs-ofctl --may-create mod-group`.
    AddOrModify = 0x8000,
}

impl GroupModCommand {
    fn from_wire(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Add,
            1 => Self::Modify,
            2 => Self::Delete,
            3 => Self::InsertBucket,
            5 => Self::RemoveBucket,
            0x8000 => Self::AddOrModify,
            _ => return None,
        })
    }
}

/// One bucket.
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'a> {
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

    /// Encodes buckets: weight, watched port and group, actions of each.
    pub fn build<'a>(buckets: impl IntoIterator<Item = (u16, u32, u32, &'a ActionList)>) -> Self {
        let mut bytes = Vec::new();
        for (weight, watch_port, watch_group, actions) in buckets {
            let start = bytes.len();
            bytes.put_u16(0);
            bytes.put_u16(weight);
            bytes.put_u32(watch_port);
            bytes.put_u32(watch_group);
            bytes.zeros(4);
            bytes.put(actions.as_bytes());
            patch_length(&mut bytes, start, 0);
        }
        Self(bytes.into_boxed_slice())
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
            if strictness == Strictness::Request && !is_representable(watch_port) {
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
}

impl GroupMod {
    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let command = reader.u16()?;
        let group_type = reader.u8()?;
        reader.skip(1)?;
        let group_id = reader.u32()?;
        if reader.len() % 8 != 0 {
            return Err(Refusal::new(
                ErrorCode::BAD_REQUEST_BAD_LEN,
                "group-mod is not padded to 8 bytes",
            ));
        }
        let buckets = Buckets::decode(reader.rest(), Strictness::Request)?;
        let known = GroupModCommand::from_wire(command);
        let refuse = |error, detail: &'static str| Err(Refusal::new(error, detail));
        if known == Some(GroupModCommand::Delete) && !buckets.is_empty() {
            return refuse(
                ErrorCode::GROUP_MOD_FAILED_INVALID_GROUP,
                "deletion with buckets",
            );
        }
        // From here on in the order of ofputil_check_group_mod().
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
        if command == GroupModCommand::RemoveBucket && !buckets.is_empty() {
            return refuse(
                ErrorCode::GROUP_MOD_FAILED_BAD_BUCKET,
                "removal of buckets with buckets",
            );
        }
        for bucket in buckets.iter() {
            let watches = bucket.watch_port != port_no::ANY || bucket.watch_group != group_no::ANY;
            if bucket.weight != 0
                && group_type != group_type::SELECT
                && command != GroupModCommand::InsertBucket
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
        Ok(Self {
            command,
            group_type,
            group_id,
            buckets,
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.command as u16);
        out.put(&[self.group_type, 0]);
        out.put_u32(self.group_id);
        out.put(self.buckets.as_bytes());
    }
}
