//! Groups, and how messages change them (`modify_group_start()`, ofproto/ofproto.c).

use crate::model::facts::Facts;
use openflow13::{
    bucket_no, Bucket, Buckets, ErrorCode, GroupMod, GroupModCommand, GroupStats, Selection,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

#[derive(Clone, Debug)]
pub struct Group {
    pub id: u32,
    pub group_type: u8,
    pub buckets: Buckets,
    pub selection: Option<Selection>,
    pub facts: Facts,
    pub created: Instant,
    /// Counters of removed copies.
    pub base: Option<GroupStats>,
}

impl Group {
    /// Tells whether OpenFlow 1.3 cannot say all of it.
    pub fn has_properties(&self) -> bool {
        self.selection.is_some() || !self.buckets.are_in_order() || self.facts.has_meter_inside
    }

    /// Returns the group that a message makes, or makes of the one that is there. `facts`: of the message.
    ///
    /// # Errors
    /// Those of Open vSwitch.
    pub fn after(
        old: Option<&Self>,
        message: &GroupMod,
        facts: Facts,
        now: Instant,
    ) -> Result<Self, ErrorCode> {
        let unknown = || old.ok_or(ErrorCode::GROUP_MOD_FAILED_UNKNOWN_GROUP);
        match message.command {
            GroupModCommand::InsertBucket(place) => {
                let old = unknown()?;
                let buckets: Vec<Bucket<'_>> = old.buckets.iter().collect();
                old.with_buckets(inserted(&buckets, &message.buckets, place)?)
            }
            GroupModCommand::RemoveBucket(place) => {
                let old = unknown()?;
                let buckets: Vec<Bucket<'_>> = old.buckets.iter().collect();
                old.with_buckets(removed(&buckets, place)?)
            }
            GroupModCommand::Add if old.is_some() => Err(ErrorCode::GROUP_MOD_FAILED_GROUP_EXISTS),
            GroupModCommand::Modify if old.is_none() => {
                Err(ErrorCode::GROUP_MOD_FAILED_UNKNOWN_GROUP)
            }
            _ => Ok(Self {
                id: message.group_id,
                group_type: message.group_type,
                buckets: message.buckets.clone(),
                selection: message.selection.clone(),
                facts,
                created: old.map_or(now, |group| group.created),
                base: None,
            }),
        }
    }

    /// Returns it with these buckets, whose counters go on; its own begin at 0.
    fn with_buckets(&self, list: Vec<Placed<'_>>) -> Result<Self, ErrorCode> {
        let base = self.base.as_ref().map(|base| {
            let counters = list.iter().map(|(_, index)| {
                let counter = index.and_then(|index| base.buckets.get(index));
                counter.copied().unwrap_or_default()
            });
            GroupStats {
                packet_count: 0,
                byte_count: 0,
                buckets: counters.collect(),
                ..base.clone()
            }
        });
        let buckets = Buckets::with_ids(list.into_iter().map(|(bucket, _)| bucket));
        Ok(Self {
            facts: Facts::of_buckets(&buckets),
            buckets,
            base,
            ..self.clone()
        })
    }
}

/// A bucket, and its index among those that were there.
type Placed<'a> = (Bucket<'a>, Option<usize>);

/// `copy_buckets_for_insert_bucket()`.
fn inserted<'a>(
    old: &[Bucket<'a>],
    new: &'a Buckets,
    place: u32,
) -> Result<Vec<Placed<'a>>, ErrorCode> {
    let at = match place {
        bucket_no::LAST => old.len(),
        0..=bucket_no::MAX => {
            let found = old.iter().position(|bucket| bucket.id == place);
            found.ok_or(ErrorCode::GROUP_MOD_FAILED_UNKNOWN_BUCKET)? + 1
        }
        _ => 0,
    };
    let mut all: Vec<Placed<'a>> = placed(old);
    all.splice(at..at, new.iter().map(|bucket| (bucket, None)));
    let mut seen = BTreeSet::new();
    match all.iter().all(|(bucket, _)| seen.insert(bucket.id)) {
        true => Ok(all),
        false => Err(ErrorCode::GROUP_MOD_FAILED_BUCKET_EXISTS),
    }
}

/// `copy_buckets_for_remove_bucket()`.
fn removed<'a>(old: &[Bucket<'a>], place: u32) -> Result<Vec<Placed<'a>>, ErrorCode> {
    let skipped = match place {
        bucket_no::ALL => return Ok(Vec::new()),
        bucket_no::FIRST => Some(0),
        bucket_no::LAST => old.len().checked_sub(1),
        place => {
            let found = old.iter().position(|bucket| bucket.id == place);
            Some(found.ok_or(ErrorCode::GROUP_MOD_FAILED_UNKNOWN_BUCKET)?)
        }
    };
    let mut all = placed(old);
    all.retain(|(_, index)| *index != skipped);
    Ok(all)
}

fn placed<'a>(old: &[Bucket<'a>]) -> Vec<Placed<'a>> {
    let numbered = old.iter().enumerate();
    numbered
        .map(|(index, bucket)| (*bucket, Some(index)))
        .collect()
}

/// Adds the counters of a removed copy of a group.
pub fn add_to_group(group: &mut Arc<Group>, stats: &GroupStats) {
    match &mut Arc::make_mut(group).base {
        Some(base) => add_group(base, stats),
        none => *none = Some(stats.clone()),
    }
}

/// Adds the counters of `other` to those of `sum`.
pub fn add_group(sum: &mut GroupStats, other: &GroupStats) {
    sum.packet_count = sum.packet_count.wrapping_add(other.packet_count);
    sum.byte_count = sum.byte_count.wrapping_add(other.byte_count);
    for (bucket, more) in sum.buckets.iter_mut().zip(&other.buckets) {
        bucket.packet_count = bucket.packet_count.wrapping_add(more.packet_count);
        bucket.byte_count = bucket.byte_count.wrapping_add(more.byte_count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow13::{group_no, group_type, port_no, ActionList, BucketCounter};

    fn buckets(ids: &[u32]) -> Buckets {
        let list = ActionList::new().output(1, 0);
        Buckets::with_ids(ids.iter().map(|id| Bucket {
            id: *id,
            weight: 0,
            watch_port: port_no::ANY,
            watch_group: group_no::ANY,
            actions: list.as_actions(),
        }))
    }

    #[test]
    fn buckets_are_inserted_where_the_command_says() {
        let insert = |old: &[u32], new: &[u32], place| {
            let (old, new) = (buckets(old), buckets(new));
            let old: Vec<_> = old.iter().collect();
            inserted(&old, &new, place).map(|all| all.iter().map(|(b, _)| b.id).collect::<Vec<_>>())
        };
        assert_eq!(
            insert(&[1, 2], &[7, 5], bucket_no::FIRST),
            Ok(vec![7, 5, 1, 2])
        );
        assert_eq!(
            insert(&[1, 2], &[7, 5], bucket_no::ALL),
            Ok(vec![7, 5, 1, 2])
        );
        assert_eq!(
            insert(&[1, 2], &[7, 5], bucket_no::LAST),
            Ok(vec![1, 2, 7, 5])
        );
        assert_eq!(insert(&[1, 2], &[7, 5], 1), Ok(vec![1, 7, 5, 2]));
        assert_eq!(insert(&[], &[7], bucket_no::LAST), Ok(vec![7]));
        assert_eq!(
            insert(&[1], &[7], 7),
            Err(ErrorCode::GROUP_MOD_FAILED_UNKNOWN_BUCKET)
        );
        assert_eq!(
            insert(&[1], &[1], 1),
            Err(ErrorCode::GROUP_MOD_FAILED_BUCKET_EXISTS)
        );
    }

    #[test]
    fn buckets_are_removed_where_the_command_says() {
        let remove = |old: &[u32], place| {
            let old = buckets(old);
            let old: Vec<_> = old.iter().collect();
            removed(&old, place).map(|left| left.iter().map(|(b, _)| b.id).collect::<Vec<_>>())
        };
        assert_eq!(remove(&[4, 2, 9], bucket_no::FIRST), Ok(vec![2, 9]));
        assert_eq!(remove(&[4, 2, 9], bucket_no::LAST), Ok(vec![4, 2]));
        assert_eq!(remove(&[4, 2, 9], 2), Ok(vec![4, 9]));
        assert_eq!(remove(&[4, 2, 9], bucket_no::ALL), Ok(vec![]));
        assert_eq!(remove(&[], bucket_no::LAST), Ok(vec![]));
        assert_eq!(
            remove(&[4], 2),
            Err(ErrorCode::GROUP_MOD_FAILED_UNKNOWN_BUCKET)
        );
    }

    #[test]
    fn counters_of_buckets_go_on_when_others_come_or_go() {
        let counted = |ids: &[u32], counts: &[u64]| Group {
            id: 1,
            group_type: group_type::ALL,
            buckets: buckets(ids),
            selection: None,
            facts: Facts::default(),
            created: Instant::now(),
            base: Some(GroupStats {
                group_id: 1,
                ref_count: 0,
                packet_count: counts.iter().sum(),
                byte_count: 0,
                duration_sec: 0,
                duration_nsec: 0,
                buckets: counts
                    .iter()
                    .map(|count| BucketCounter {
                        packet_count: *count,
                        byte_count: 0,
                    })
                    .collect(),
            }),
        };
        let change = |command, ids: &[u32]| {
            let message = GroupMod {
                command,
                group_type: group_type::SELECT,
                group_id: 1,
                buckets: buckets(ids),
                selection: None,
            };
            let old = counted(&[4, 2, 9], &[10, 20, 30]);
            let new = Group::after(Some(&old), &message, Facts::default(), Instant::now());
            let new = new.unwrap();
            assert_eq!(new.group_type, group_type::ALL, "the type of a group stays");
            let base = new.base.unwrap();
            assert_eq!(base.packet_count, 0);
            let counts = base.buckets.iter().map(|bucket| bucket.packet_count);
            counts.collect::<Vec<_>>()
        };
        assert_eq!(
            change(GroupModCommand::InsertBucket(4), &[7]),
            [10, 0, 20, 30]
        );
        assert_eq!(change(GroupModCommand::RemoveBucket(4), &[]), [20, 30]);
    }
}
