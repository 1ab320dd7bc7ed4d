//! Merges several switches' answers into one: counters are sums (each packet was counted once), the rest comes from the virtual tables.

use crate::api::SwitchIndex;
use crate::controllers::reply::Reply;
use crate::controllers::View;
use crate::layout::spelling::spelled_buckets;
use crate::model::groups::{add_group, Group};
use crate::model::truth::{add_meter, Existing};
use crate::offload::sums::Sums;
use crate::server::counters::{combine_ports, minus, plus, shown};
use crate::server::ports::Location;
use crate::switches::reads::{Parts, Shown};
use crate::wire::wire;
use foldhash::HashMap;
use openflow13::openflow14::encode_port_stats;
use openflow13::{
    encode_multipart_reply, group_no, meter_no, port_no, GroupDesc, GroupFeatures, GroupStats,
    Message, MeterConfig, MeterFeatures, MeterStats, Multipart, MultipartReply, MultipartRequest,
    Port, PortStats, QueueStats, SwitchDesc, TableStats,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NO_GROUPS: GroupFeatures = GroupFeatures {
    types: 0,
    capabilities: 0,
    max_groups: [0; 4],
    actions: [0; 4],
};

const NO_METERS: MeterFeatures = MeterFeatures {
    max_meter: 0,
    band_types: 0,
    capabilities: 0,
    max_bands: 0,
    max_color: 0,
};

/// A merged answer in progress.
#[derive(Debug)]
pub struct Answers {
    pub parts: Parts,
    /// The executors at the time of the request.
    pub steady: bool,
    /// [`FlowTables::begin_reading`] of the request.
    ///
    /// [`FlowTables::begin_reading`]: crate::model::tables::FlowTables::begin_reading
    pub since: u64,
    /// The groups or meters at the time of the request, if they are asked for.
    pub existing: Existing,
    /// The packets that offload rules have carried, if ports are asked for.
    pub offloaded: Sums,
    pub shown: Shown,
}

impl View<'_> {
    /// Returns the reply's messages, ready to send.
    pub fn merge(
        &self,
        request: &MultipartRequest,
        answers: Answers,
        xid: u32,
        now: Instant,
    ) -> Reply {
        let reply = match request {
            MultipartRequest::Desc => MultipartReply::Desc(self.description()),
            MultipartRequest::Flow(filter) => {
                return Reply::flows(xid, self.merge_flows(filter, answers, now))
            }
            MultipartRequest::Aggregate(filter) => self.merge_aggregate(filter, answers, now),
            MultipartRequest::Table => MultipartReply::Table(self.merge_tables(answers)),
            MultipartRequest::PortStats { port } => {
                let ports = self.merge_ports(*port, answers.parts, &answers.offloaded);
                match answers.shown {
                    // OpenFlow 1.4 says more.
                    Shown::Importance => return encode_port_stats(xid, &ports).into(),
                    _ => MultipartReply::PortStats(ports),
                }
            }
            MultipartRequest::Queue { port, .. } => {
                MultipartReply::Queue(self.merge_queues(*port, answers.parts))
            }
            MultipartRequest::Group { group } => {
                MultipartReply::Group(self.merge_groups(*group, answers, now))
            }
            MultipartRequest::GroupDesc => {
                MultipartReply::GroupDesc(self.group_descriptions(answers))
            }
            MultipartRequest::Meter { meter } => {
                MultipartReply::Meter(self.merge_meters(*meter, answers, now))
            }
            MultipartRequest::MeterConfig { meter } => {
                MultipartReply::MeterConfig(self.meter_configs(*meter, answers))
            }
            MultipartRequest::PortDesc => {
                let ports = self.port_descriptions().into_iter();
                MultipartReply::PortDesc(match answers.shown {
                    Shown::Written => ports.collect(),
                    _ => ports.map(Port::in_openflow13).collect(),
                })
            }
            // The hypervisor's answer, part by part, because all switches run the same software. Without it, no features.
            _ if !answers.parts.is_empty() => return relay(answers.parts, xid).into(),
            MultipartRequest::GroupFeatures => MultipartReply::GroupFeatures(NO_GROUPS),
            MultipartRequest::MeterFeatures => MultipartReply::MeterFeatures(NO_METERS),
            MultipartRequest::TableFeatures(_)
            | MultipartRequest::FlowMonitor(_)
            | MultipartRequest::Experimenter { .. } => {
                MultipartReply::TableFeatures(Box::default())
            }
        };
        encode_multipart_reply(xid, &reply).into()
    }

    fn description(&self) -> SwitchDesc {
        SwitchDesc {
            manufacturer: b"OneSwitch".as_slice().into(),
            hardware: format!("{} Open vSwitch instances", self.switches.list.len())
                .into_bytes()
                .into(),
            software: env!("CARGO_PKG_VERSION").as_bytes().into(),
            serial: b"None".as_slice().into(),
            datapath: format!("{:016x}", self.datapath_id).into_bytes().into(),
        }
    }

    fn merge_tables(&self, answers: Answers) -> Vec<TableStats> {
        let executors = self.server.executors.all();
        let learner = executors.only().filter(|at| self.switches.is_watched(*at));
        let mut tables: BTreeMap<u8, TableStats> = BTreeMap::new();
        let mut counts: BTreeMap<u8, u32> = BTreeMap::new();
        for (switch, part) in answers.parts {
            let MultipartReply::Table(list) = part else {
                continue;
            };
            for table in list {
                let sum = tables.entry(table.table_id).or_insert(TableStats {
                    lookup_count: 0,
                    matched_count: 0,
                    ..table
                });
                sum.lookup_count = sum.lookup_count.wrapping_add(table.lookup_count);
                sum.matched_count = sum.matched_count.wrapping_add(table.matched_count);
                sum.active_count = 0;
                if learner == Some(switch) {
                    counts.insert(table.table_id, table.active_count);
                }
            }
        }
        if counts.is_empty() {
            let rules = self.truth.tables.as_of(answers.since).count_by_table();
            let rules = rules.into_iter();
            counts = rules.map(|(table, count)| (table, count as u32)).collect();
        }
        for (table_id, active_count) in counts {
            let blank = TableStats {
                table_id,
                active_count: 0,
                lookup_count: 0,
                matched_count: 0,
            };
            tables.entry(table_id).or_insert(blank).active_count = active_count;
        }
        tables.into_values().collect()
    }

    fn merge_ports(&self, asked: u32, parts: Parts, offloaded: &Sums) -> Vec<PortStats> {
        let mut counted: BTreeMap<(SwitchIndex, u32), PortStats> = BTreeMap::new();
        for (switch, part) in parts {
            if let MultipartReply::PortStats(list) = part {
                counted.extend(
                    list.into_iter()
                        .map(|stats| ((switch, stats.port_no), stats)),
                );
            }
        }
        if asked == port_no::LOCAL {
            return counted.into_values().collect();
        }
        let at = |location: &Location| {
            let number = self.switches.list[location.switch]
                .edge
                .number_of(&location.interface)?;
            counted.get(&(location.switch, number))
        };
        self.server
            .ports
            .iter()
            .filter(|p| asked == port_no::ANY || asked == p.number)
            .map(|port| {
                let offloaded = offloaded.get(&port.number).copied();
                let mut sum = PortStats {
                    port_no: port.number,
                    ..port.base_with(offloaded.unwrap_or_default())
                };
                // During a move both interfaces carry it.
                if let Some(moving) = &port.moving {
                    if let (Some(stats), Some(before)) = (at(&moving.to), &moving.counted_before) {
                        sum = combine_ports(&sum, &combine_ports(stats, before, minus), plus);
                    }
                }
                let stats = at(&port.home);
                if let Some(stats) = stats {
                    sum = combine_ports(&sum, stats, shown);
                }
                // What its interface does not count is not shown.
                let intel = stats.and_then(|stats| stats.intel.as_ref());
                sum.intel = sum.intel.filter(|_| intel.is_some());
                if let (Some(sum), Some(intel)) = (&mut sum.intel, intel) {
                    sum.custom.truncate(intel.custom.len());
                }
                sum
            })
            .collect()
    }

    fn merge_queues(&self, asked: u32, parts: Parts) -> Vec<QueueStats> {
        let interfaces: HashMap<(SwitchIndex, u32), u32> = self
            .server
            .ports
            .iter()
            .filter_map(|p| {
                let location = p.delivery();
                let edge = &self.switches.list[location.switch].edge;
                let number = edge.number_of(&location.interface)?;
                Some(((location.switch, number), p.number))
            })
            .collect();
        let mut merged = Vec::new();
        for (switch, part) in parts {
            let MultipartReply::Queue(list) = part else {
                continue;
            };
            if asked == port_no::LOCAL {
                merged.extend(list);
                continue;
            }
            for queue in list {
                match interfaces.get(&(switch, queue.port_no)) {
                    Some(port) if asked == port_no::ANY || asked == *port => {
                        merged.push(QueueStats {
                            port_no: *port,
                            ..queue
                        })
                    }
                    _ => {}
                }
            }
        }
        merged
    }

    fn merge_groups(&self, asked: u32, answers: Answers, now: Instant) -> Vec<GroupStats> {
        let mut merged: BTreeMap<u32, GroupStats> = BTreeMap::new();
        for (_, part) in answers.parts {
            let MultipartReply::Group(list) = part else {
                continue;
            };
            for stats in list
                .into_iter()
                .filter(|s| asks_for_group(asked, s.group_id))
                .filter(|s| !self.server.hidden.contain(s.group_id))
            {
                match merged.get_mut(&stats.group_id) {
                    Some(sum) => add_group(sum, &stats),
                    None => {
                        merged.insert(stats.group_id, stats);
                    }
                }
            }
        }
        let tables = self.truth.tables.as_of(answers.since);
        let references = tables.references_to_groups();
        for (id, stats) in &mut merged {
            if let Some(group) = answers.existing.groups.get(id) {
                // Counters of copies that were removed meanwhile are those of the present group.
                let present = self.truth.groups.get(id);
                let present = present.filter(|now| now.created == group.created);
                if let Some(base) = &present.unwrap_or(group).base {
                    add_group(stats, base);
                }
                (stats.duration_sec, stats.duration_nsec) =
                    seconds(now.saturating_duration_since(group.created));
                stats.ref_count = references.get(id).copied().unwrap_or(0);
            }
        }
        merged.into_values().collect()
    }

    /// Describes groups as Open vSwitch spells what controllers wrote, however the switches have got it.
    fn group_descriptions(&self, answers: Answers) -> Vec<GroupDesc> {
        let is_answered = !answers.parts.is_empty();
        let is_openflow10 = matches!(answers.shown, Shown::Written);
        let mut there = BTreeSet::new();
        for (_, part) in answers.parts {
            if let MultipartReply::GroupDesc(list) = part {
                there.extend(list.iter().map(|group| group.group_id));
            }
        }
        // One that the switches have refused never was.
        let groups = answers.existing.groups.values();
        let groups = groups.filter(|group| !is_answered || there.contains(&group.id));
        let describe = |group: &Arc<Group>| GroupDesc {
            group_type: group.group_type,
            group_id: group.id,
            buckets: spelled_buckets(&group.buckets, is_openflow10),
            selection: group.selection.clone(),
        };
        groups.map(describe).collect()
    }

    fn merge_meters(&self, asked: u32, answers: Answers, now: Instant) -> Vec<MeterStats> {
        let mut merged: BTreeMap<u32, MeterStats> = BTreeMap::new();
        for (_, part) in answers.parts {
            let MultipartReply::Meter(list) = part else {
                continue;
            };
            for stats in list
                .into_iter()
                .filter(|s| asks_for_meter(asked, s.meter_id))
            {
                match merged.get_mut(&stats.meter_id) {
                    Some(sum) => add_meter(sum, &stats),
                    None => {
                        merged.insert(stats.meter_id, stats);
                    }
                }
            }
        }
        let tables = self.truth.tables.as_of(answers.since);
        let rules = tables.rules_using_meters();
        for (id, stats) in &mut merged {
            if let Some(meter) = answers.existing.meters.get(id) {
                let present = self.truth.meters.get(id);
                let present = present.filter(|now| now.created == meter.created);
                if let Some(base) = &present.unwrap_or(meter).base {
                    add_meter(stats, base);
                }
                (stats.duration_sec, stats.duration_nsec) =
                    seconds(now.saturating_duration_since(meter.created));
                stats.flow_count = rules.get(id).copied().unwrap_or(0);
            }
        }
        merged.into_values().collect()
    }

    /// Returns the meters as an executor spells them: Open vSwitch fills in burst sizes.
    fn meter_configs(&self, asked: u32, answers: Answers) -> Vec<MeterConfig> {
        let mut spelled: BTreeMap<u32, MeterConfig> = BTreeMap::new();
        let is_answered = !answers.parts.is_empty();
        for (_, part) in answers.parts {
            if let MultipartReply::MeterConfig(list) = part {
                spelled.extend(list.into_iter().map(|m| (m.meter_id, m)));
            }
        }
        let mut meters = answers.existing.meters;
        meters.retain(|id, _| asks_for_meter(asked, *id));
        meters.retain(|id, _| !is_answered || spelled.contains_key(id));
        meters
            .values()
            .map(|m| {
                spelled.remove(&m.id).unwrap_or_else(|| MeterConfig {
                    flags: m.flags,
                    meter_id: m.id,
                    bands: m.bands.clone(),
                })
            })
            .collect()
    }

    pub fn port_descriptions(&self) -> Vec<Port> {
        let lost = self.switches.out_of_reach();
        self.server
            .ports
            .iter()
            .map(|port| {
                let location = port.delivery();
                let physical = self.switches.list[location.switch]
                    .edge
                    .port_named(&location.interface);
                port.view(physical, !port.needs().intersection(lost).is_empty())
            })
            .collect()
    }
}

/// Splits a duration, rounded down to milliseconds as Open vSwitch's.
pub fn seconds(duration: Duration) -> (u32, u32) {
    (
        duration.as_secs() as u32,
        duration.subsec_millis() * 1_000_000,
    )
}

/// Relays parts unchanged, with the controller's xid and the "more" flag on all but the last.
fn relay(parts: Parts, xid: u32) -> Vec<Vec<u8>> {
    let count = parts.len();
    let numbered = parts.into_iter().enumerate();
    numbered
        .map(|(index, (_, body))| {
            wire(
                xid,
                &Message::MultipartReply(Multipart {
                    more: index + 1 < count,
                    body,
                }),
            )
        })
        .collect()
}

/// Tells whether a group or meter request selects `id`.
pub fn asks_for_group(asked: u32, id: u32) -> bool {
    asked == group_no::ALL || asked == group_no::ANY || asked == id
}

pub fn asks_for_meter(asked: u32, id: u32) -> bool {
    asked == meter_no::ALL || asked == id
}
