//! Our own messages to the switches.

use crate::api::SwitchIndex;
use crate::layout::translate::physical_buckets;
use crate::model::hidden::{Pairs, ALL_GROUP, FLOOD_GROUP};
use crate::model::rule::RuleKey;
use crate::model::tables::ALL_TABLES;
use crate::model::truth::Group;
use crate::server::flood::Generation;
use openflow13::{
    group_no, group_type, port_no, Buckets, FlowMod, FlowModCommand, FlowStats, FlowStatsRequest,
    GroupMod, GroupModCommand, Match,
};

/// Builds the hidden groups for FLOOD and ALL at `switch` (flood.rs), as additions.
pub fn flood_groups(list: &Generation, switch: SwitchIndex) -> [GroupMod; 2] {
    [FLOOD_GROUP, ALL_GROUP].map(|group_id| {
        let buckets = list.buckets(switch, group_id == ALL_GROUP);
        GroupMod {
            command: GroupModCommand::Add,
            group_type: group_type::ALL,
            group_id,
            buckets: Buckets::from_bytes(buckets).unwrap_or_default(),
            selection: None,
        }
    })
}

pub fn key_of(flow: &FlowStats) -> Option<RuleKey> {
    Some(RuleKey {
        table: flow.table_id,
        priority: flow.priority,
        matching: flow.matching.canonical().ok()?,
    })
}

pub fn physical_group(group: &Group, pairs: &Pairs) -> GroupMod {
    let buckets = if group.facts.is_translated_group() {
        Buckets::from_bytes(physical_buckets(group.buckets.as_bytes(), pairs))
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
pub fn group_with_properties(group: &Group, pairs: &Pairs) -> GroupMod {
    GroupMod {
        command: GroupModCommand::Modify,
        selection: group.selection.clone(),
        ..physical_group(group, pairs)
    }
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
