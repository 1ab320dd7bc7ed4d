//! Buckets that controllers insert into groups, or remove: the switches get the whole group, because OpenFlow 1.3 has no numbers of buckets.

use crate::controllers::Incoming;
use crate::core::Core;
use openflow13::{bucket_no, Bucket, Buckets, ErrorCode, GroupMod, GroupModCommand};
use std::collections::BTreeSet;

impl Core {
    /// Returns the modification that a message makes of its group, or the message itself if it changes the group as a whole; `None`: it
    /// waits until earlier messages are settled.
    ///
    /// # Errors
    /// Those of Open vSwitch (`modify_group_start()`, ofproto/ofproto.c).
    pub(in crate::core) fn whole_group(
        &mut self,
        incoming: Incoming<'_>,
        message: GroupMod,
    ) -> Result<Option<GroupMod>, ErrorCode> {
        let (GroupModCommand::InsertBucket(_) | GroupModCommand::RemoveBucket(_)) = message.command
        else {
            return Ok(Some(message));
        };
        if self.commit.is_none() && self.switches.verdicts.changes_in_flight() {
            let batch = self.switches.verdicts.current_batch();
            self.hold_until_settled(incoming, batch);
            return Ok(None);
        }
        let group = self.truth.groups.get(&message.group_id);
        let group = group.ok_or(ErrorCode::GROUP_MOD_FAILED_UNKNOWN_GROUP)?;
        let buckets = match message.command {
            GroupModCommand::InsertBucket(place) => {
                inserted(&group.buckets, &message.buckets, place)?
            }
            GroupModCommand::RemoveBucket(place) => removed(&group.buckets, place)?,
            _ => return Ok(Some(message)),
        };
        Ok(Some(GroupMod {
            command: GroupModCommand::Modify,
            group_type: group.group_type,
            group_id: message.group_id,
            buckets,
            selection: group.selection.clone(),
        }))
    }
}

/// `copy_buckets_for_insert_bucket()`.
fn inserted(old: &Buckets, new: &Buckets, place: u32) -> Result<Buckets, ErrorCode> {
    let old: Vec<Bucket<'_>> = old.iter().collect();
    let mut seen = BTreeSet::new();
    let at = match place {
        bucket_no::LAST => old.len(),
        0..=bucket_no::MAX => {
            let found = old.iter().position(|bucket| bucket.id == place);
            found.ok_or(ErrorCode::GROUP_MOD_FAILED_UNKNOWN_BUCKET)? + 1
        }
        _ => 0,
    };
    let (before, after) = old.split_at(at);
    let all: Vec<Bucket<'_>> = before
        .iter()
        .copied()
        .chain(new.iter())
        .chain(after.iter().copied())
        .collect();
    match all.iter().all(|bucket| seen.insert(bucket.id)) {
        true => Ok(Buckets::with_ids(all)),
        false => Err(ErrorCode::GROUP_MOD_FAILED_BUCKET_EXISTS),
    }
}

/// `copy_buckets_for_remove_bucket()`.
fn removed(old: &Buckets, place: u32) -> Result<Buckets, ErrorCode> {
    let old: Vec<Bucket<'_>> = old.iter().collect();
    let skipped = match place {
        bucket_no::ALL => return Ok(Buckets::default()),
        bucket_no::FIRST => Some(0),
        bucket_no::LAST => old.len().checked_sub(1),
        place => {
            let found = old.iter().position(|bucket| bucket.id == place);
            Some(found.ok_or(ErrorCode::GROUP_MOD_FAILED_UNKNOWN_BUCKET)?)
        }
    };
    let kept = old.iter().enumerate();
    let kept = kept.filter(|(index, _)| Some(*index) != skipped);
    Ok(Buckets::with_ids(kept.map(|(_, bucket)| *bucket)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow13::{group_no, port_no, ActionList};

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
            inserted(&buckets(old), &buckets(new), place)
                .map(|all| all.iter().map(|b| b.id).collect::<Vec<_>>())
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
            removed(&buckets(old), place).map(|left| left.iter().map(|b| b.id).collect::<Vec<_>>())
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
}
