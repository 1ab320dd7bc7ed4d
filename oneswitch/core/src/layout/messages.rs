//! Our own messages to the switches.

use crate::api::SwitchIndex;
use crate::layout::translate::physical_buckets;
use crate::model::groups::Group;
use crate::model::hidden::{Hidden, HiddenGroups};
use crate::model::rule::RuleKey;
use crate::model::tables::ALL_TABLES;
use crate::server::flood::Generation;
use openflow13::{
    bucket_no, group_no, group_type, port_no, ActionList, Buckets, FlowMod, FlowModCommand,
    FlowStats, FlowStatsRequest, GroupMod, GroupModCommand, Match,
};

/// Builds the hidden groups for FLOOD and ALL at `switch` (flood.rs), as additions.
pub fn flood_groups(
    hidden: &HiddenGroups,
    list: &Generation,
    switch: SwitchIndex,
) -> Vec<GroupMod> {
    let floods = hidden.iter().filter_map(|(group_id, hidden)| {
        let buckets = match hidden {
            Hidden::Flood | Hidden::All => list.buckets(switch, hidden == Hidden::All),
            _ => return None,
        };
        Some(GroupMod {
            command: GroupModCommand::Add,
            group_type: group_type::ALL,
            group_id,
            buckets: Buckets::from_bytes(buckets).unwrap_or_default(),
            selection: None,
        })
    });
    floods.collect()
}

pub fn key_of(flow: &FlowStats) -> Option<RuleKey> {
    Some(RuleKey {
        table: flow.table_id,
        priority: flow.priority,
        matching: flow.matching.canonical().ok()?,
    })
}

pub fn physical_group(group: &Group, hidden: &HiddenGroups) -> GroupMod {
    let buckets = if group.facts.is_translated_group() {
        Buckets::from_bytes(physical_buckets(group.buckets.as_bytes(), hidden))
            .unwrap_or_else(|_| group.buckets.clone())
    } else {
        group.buckets.clone()
    };
    GroupMod {
        command: GroupModCommand::Add,
        group_type: group.group_type,
        group_id: group.id,
        buckets,
        selection: None,
    }
}

/// Builds what a connection of OpenFlow 1.5 tells a switch that has the group.
pub fn group_with_properties(group: &Group, hidden: &HiddenGroups) -> GroupMod {
    GroupMod {
        command: GroupModCommand::Modify,
        selection: group.selection.clone(),
        ..physical_group(group, hidden)
    }
}

/// Returns the messages that add a whole group, or modify it: several if it has got buckets that Open vSwitch does not take in one message.
/// It lets buckets of any kind be inserted into any group, in a message that names a select group (`ofputil_check_group_mod()`).
pub fn messages_of_group(group: GroupMod) -> Vec<GroupMod> {
    if group.is_takable() {
        return vec![group];
    }
    let (group_id, buckets) = (group.group_id, group.buckets);
    let is_indirect = group.group_type == group_type::INDIRECT;
    let nothing = ActionList::new();
    let placeholder = (0, port_no::ANY, group_no::ANY, &nothing);
    let without = GroupMod {
        buckets: Buckets::build(is_indirect.then_some(placeholder)),
        ..group
    };
    let change = |command, group_type, buckets| GroupMod {
        command,
        group_type,
        group_id,
        buckets,
        selection: None,
    };
    let remove = GroupModCommand::RemoveBucket(bucket_no::ALL);
    let insert = GroupModCommand::InsertBucket(bucket_no::FIRST);
    vec![
        without,
        change(remove, group_type::ALL, Buckets::default()),
        change(insert, group_type::SELECT, buckets),
    ]
}

pub fn group_removal(group_id: u32) -> GroupMod {
    GroupMod {
        command: GroupModCommand::Delete,
        group_type: group_type::ALL,
        group_id,
        buckets: Buckets::default(),
        selection: None,
    }
}

pub fn removal(flow: &FlowStats) -> FlowMod {
    FlowMod::new(
        FlowModCommand::DeleteStrict,
        flow.table_id,
        flow.priority,
        flow.matching.clone(),
    )
}

pub fn remove_all() -> FlowMod {
    FlowMod::new(FlowModCommand::Delete, ALL_TABLES, 0, Match::any())
}

/// Builds a flow statistics request without a filter.
pub fn everything() -> FlowStatsRequest {
    FlowStatsRequest {
        table_id: ALL_TABLES,
        out_port: port_no::ANY,
        out_group: group_no::ANY,
        cookie: 0,
        cookie_mask: 0,
        matching: Match::any(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::Facts;
    use openflow13::Bucket;
    use std::time::Instant;

    fn group(kind: u8, buckets: &[(u16, u32)]) -> GroupMod {
        let list = ActionList::new().output(1, 0);
        let buckets = buckets.iter().map(|(weight, watch_port)| Bucket {
            id: 5,
            weight: *weight,
            watch_port: *watch_port,
            watch_group: group_no::ANY,
            actions: list.as_actions(),
        });
        GroupMod {
            command: GroupModCommand::Add,
            group_type: kind,
            group_id: 1,
            buckets: Buckets::with_ids(buckets),
            selection: None,
        }
    }

    #[test]
    fn any_buckets_get_into_any_group() {
        const NONE: (u16, u32) = (0, port_no::ANY);
        const HEAVY: (u16, u32) = (7, port_no::ANY);
        for (wanted, count) in [
            (group(group_type::ALL, &[NONE]), 1),
            (group(group_type::ALL, &[HEAVY]), 3),
            (group(group_type::INDIRECT, &[]), 3),
            (group(group_type::INDIRECT, &[NONE]), 1),
            (group(group_type::INDIRECT, &[HEAVY]), 3),
            (group(group_type::FAST_FAILOVER, &[NONE]), 3),
            (group(group_type::FAST_FAILOVER, &[(0, 1)]), 1),
        ] {
            let messages = messages_of_group(wanted.clone());
            assert_eq!(messages.len(), count);
            let mut there: Option<Group> = None;
            for message in &messages {
                assert!(message.is_takable(), "{message:?}");
                let now = Instant::now();
                let made = Group::after(there.as_ref(), message, Facts::default(), now);
                there = Some(made.unwrap());
            }
            let made = there.unwrap();
            assert_eq!(
                (made.group_type, made.buckets),
                (wanted.group_type, wanted.buckets)
            );
        }
    }
}
