//! The answers of a fake bridge to multipart requests.

use crate::fake::{outputs_to, FakeBridge};
use openflow13::{
    encode_multipart_reply, group_no, meter_no, port_no, ErrorCode, Experimenter, FlowStats,
    FlowStatsRequest, GroupDesc, GroupStats, Message, MeterConfig, MeterFeatures, MeterStats,
    Multipart, MultipartReply, MultipartRequest, PortStats, TableStats, ALL_TABLES,
};

/// Flow statistics per message, so that answers have several parts.
const PART: usize = 3;

impl FakeBridge {
    pub fn multipart(
        &mut self,
        xid: u32,
        request: Multipart<MultipartRequest>,
    ) -> Result<(), ErrorCode> {
        let reply = match request.body {
            MultipartRequest::Flow(filter) => {
                let mut flows = self.selected(&filter);
                while flows.len() > PART {
                    let rest = flows.split_off(PART);
                    let body = MultipartReply::Flow(flows);
                    self.reply(xid, Message::MultipartReply(Multipart { more: true, body }));
                    if self.broken_dumps > 0 {
                        self.broken_dumps -= 1;
                        return Err(ErrorCode::BAD_REQUEST_EPERM);
                    }
                    flows = rest;
                }
                MultipartReply::Flow(flows)
            }
            MultipartRequest::Aggregate(filter) => {
                let flows = self.selected(&filter);
                MultipartReply::Aggregate {
                    packet_count: flows.iter().map(|f| f.packet_count).sum(),
                    byte_count: flows.iter().map(|f| f.byte_count).sum(),
                    flow_count: flows.len() as u32,
                }
            }
            MultipartRequest::Table => {
                MultipartReply::Table((0..3).map(|table_id| self.table_stats(table_id)).collect())
            }
            MultipartRequest::PortDesc => {
                MultipartReply::PortDesc(self.ports.values().copied().collect())
            }
            MultipartRequest::PortStats { port } => {
                let asked = |n: &u32| port == port_no::ANY || port == *n;
                let numbers = self.ports.keys().copied().filter(asked);
                let stats = |n| PortStats {
                    port_no: n,
                    ..self.port_stats.get(&n).cloned().unwrap_or_default()
                };
                MultipartReply::PortStats(numbers.map(stats).collect())
            }
            MultipartRequest::Queue { .. } => MultipartReply::Queue(self.queues.clone()),
            MultipartRequest::GroupDesc => MultipartReply::GroupDesc(
                self.groups
                    .iter()
                    .map(|(id, (group_type, buckets))| GroupDesc {
                        group_type: *group_type,
                        group_id: *id,
                        buckets: buckets.clone(),
                        selection: None,
                    })
                    .collect(),
            ),
            MultipartRequest::Group { group } => {
                let ids = self.groups.keys().copied();
                let asked = ids.filter(|id| group == group_no::ALL || group == *id);
                MultipartReply::Group(asked.map(|id| self.group_stats(id)).collect())
            }
            MultipartRequest::Meter { meter } => {
                if meter != meter_no::ALL && !self.meters.contains_key(&meter) {
                    return Err(ErrorCode::METER_MOD_FAILED_UNKNOWN_METER);
                }
                let ids = self.meters.keys().copied();
                let asked = ids.filter(|id| meter == meter_no::ALL || meter == *id);
                MultipartReply::Meter(asked.map(|id| self.meter_stats(id)).collect())
            }
            MultipartRequest::MeterConfig { .. } => MultipartReply::MeterConfig(
                self.meters
                    .iter()
                    .map(|(id, (flags, bands))| MeterConfig {
                        flags: *flags,
                        meter_id: *id,
                        bands: bands.clone(),
                    })
                    .collect(),
            ),
            MultipartRequest::TableFeatures(body) => {
                // In two parts.
                let body = MultipartReply::TableFeatures(body);
                let first = Multipart {
                    more: true,
                    body: body.clone(),
                };
                self.reply(xid, Message::MultipartReply(first));
                body
            }
            MultipartRequest::MeterFeatures => MultipartReply::MeterFeatures(MeterFeatures {
                max_meter: self.max_meter,
                band_types: 2,
                capabilities: 3,
                max_bands: 4,
                max_color: 5,
            }),
            // A flow monitor begins.
            MultipartRequest::FlowMonitor(_) => {
                self.is_monitored = true;
                MultipartReply::Experimenter(Experimenter {
                    vendor: openflow13::ONF_VENDOR,
                    subtype: 1870,
                    body: Box::default(),
                })
            }
            other => panic!("not answered by the fake: {other:?}"),
        };
        for frame in encode_multipart_reply(xid, &reply) {
            self.output.push(frame);
        }
        Ok(())
    }

    fn selected(&self, filter: &FlowStatsRequest) -> Vec<FlowStats> {
        let key = filter.matching.canonical().unwrap();
        self.flows
            .iter()
            .filter(|f| {
                key.covers(&f.key)
                    && (filter.table_id == ALL_TABLES || filter.table_id == f.table)
                    && (f.cookie ^ filter.cookie) & filter.cookie_mask == 0
                    && outputs_to(&f.instructions, filter.out_port, filter.out_group)
            })
            .map(|f| FlowStats {
                table_id: f.table,
                duration_sec: 7,
                duration_nsec: 0,
                priority: f.priority,
                idle_timeout: f.idle,
                hard_timeout: f.hard,
                flags: f.flags,
                importance: 0,
                idle_age: 0,
                cookie: f.cookie,
                packet_count: f.packets,
                byte_count: f.bytes,
                matching: f.matching.clone(),
                instructions: f.instructions.clone(),
            })
            .collect()
    }

    fn table_stats(&self, table_id: u8) -> TableStats {
        TableStats {
            table_id,
            active_count: self.flows.iter().filter(|f| f.table == table_id).count() as u32,
            lookup_count: self.lookups,
            matched_count: self.lookups / 2,
        }
    }

    fn group_stats(&self, group_id: u32) -> GroupStats {
        let packets = self.group_packets.get(&group_id).copied().unwrap_or(0);
        let counter = openflow13::BucketCounter {
            packet_count: packets,
            byte_count: packets * 100,
        };
        GroupStats {
            group_id,
            ref_count: 0,
            packet_count: packets,
            byte_count: packets * 100,
            duration_sec: 7,
            duration_nsec: 0,
            buckets: vec![counter; self.groups[&group_id].1.iter().count()],
        }
    }

    fn meter_stats(&self, meter_id: u32) -> MeterStats {
        let packets = self.meter_packets.get(&meter_id).copied().unwrap_or(0);
        MeterStats {
            meter_id,
            flow_count: 0,
            packet_in_count: packets,
            byte_in_count: packets * 100,
            duration_sec: 7,
            duration_nsec: 0,
            bands: Vec::new(),
        }
    }
}
