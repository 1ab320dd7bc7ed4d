//! Replies and notifications in OpenFlow 1.0.

use crate::flow::FlowRemoved;
use crate::header::{kind as k, HEADER_LEN};
use crate::message::Message;
use crate::multipart::{multipart_kind as stats, FlowStats, MultipartReply, PortStats, TableStats};
use crate::packet::PacketIn;
use crate::port::{state, Port, PortStatus};
use crate::session::Features;
use crate::wire::{padded, patch_length, patch_u16, Put};
use crate::{NX_VENDOR, ONF_VENDOR};

use super::frames::message;
use super::{actions, groups, kind, matching, notices, to_port16};
use super::{Formats, StatsForm, ALL_ACTIONS, STATS_VENDOR, VERSION};
use super::{NICIRA_AGGREGATE, NICIRA_FLOW};

/// Largest message.
const MAX_MESSAGE: usize = 65_535;
/// `OFPSF_REPLY_MORE`.
const MORE: u16 = 1;
/// Capabilities that OpenFlow 1.0 defines: statistics of flows, tables, ports
/// and queues, and matches on the addresses of ARP. Open vSwitch has all.
const CAPABILITIES: u32 = 0xc7;
/// The features that Open vSwitch reports for each of its tables: all wildcards, and a limit.
const TABLE_WILDCARDS: u32 = 0x003f_ffff;
const TABLE_ENTRIES: u32 = 1_000_000;

/// Encodes a message of OpenFlow 1.3 for a peer of version 1.0, as one or more
/// messages; none if 1.0 has no such message. Errors have the version of their
/// message anyway (`encode_error`).
pub fn encode(xid: u32, content: &Message, formats: &Formats, form: StatsForm) -> Vec<Vec<u8>> {
    let one = match content {
        Message::EchoReply(data) => message(k::ECHO_REPLY, xid, data),
        Message::GetConfigReply(config) => {
            let mut body = Vec::new();
            config.put(&mut body);
            message(k::GET_CONFIG_REPLY, xid, &body)
        }
        Message::BarrierReply => message(kind::BARRIER_REPLY, xid, &[]),
        Message::QueueGetConfigReply { port, .. } => {
            let mut body = Vec::new();
            body.put_u16(to_port16(*port));
            body.zeros(6);
            message(kind::QUEUE_GET_CONFIG_REPLY, xid, &body)
        }
        Message::Experimenter(content) if content.vendor == ONF_VENDOR => {
            return groups::forwarded(content).into_iter().collect();
        }
        Message::Experimenter(content) if content.vendor == NX_VENDOR => {
            let mut body = Vec::new();
            content.put(&mut body);
            message(k::EXPERIMENTER, xid, &body)
        }
        Message::PacketIn(packet) => {
            let chosen = notices::encode_packet_in(VERSION, packet, formats.packet_in);
            chosen.unwrap_or_else(|| packet_in(packet))
        }
        Message::FlowRemoved(removed) if formats.nxm => notices::flow_removed(removed),
        Message::FlowRemoved(removed) => flow_removed(removed),
        Message::PortStatus(status) => port_status(status),
        Message::MultipartReply(reply) => return stats_reply(xid, reply.more, &reply.body, form),
        _ => return Vec::new(),
    };
    vec![one]
}

/// Encodes `ofp_switch_features`, which lists the ports.
pub fn encode_features(xid: u32, features: &Features, ports: &[Port]) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u64(features.datapath_id);
    body.put_u32(features.n_buffers);
    body.put(&[features.n_tables, 0, 0, 0]);
    body.put_u32(CAPABILITIES);
    body.put_u32(ALL_ACTIONS);
    for port in ports {
        // As in Open vSwitch, ports that do not fit are left out.
        if HEADER_LEN + body.len() + 48 <= MAX_MESSAGE {
            put_port(&mut body, port);
        }
    }
    message(k::FEATURES_REPLY, xid, &body)
}

/// Converts bits of `ofp_port_features` from OpenFlow 1.3, which has speeds and
/// a bit that 1.0 lacks.
fn features_10(bits: u32) -> u32 {
    bits & 0x7f | bits >> 4 & 0xf80
}

/// Does the reverse.
pub(super) fn features_13(bits: u32) -> u32 {
    bits & 0x7f | (bits & 0xf80) << 4
}

fn put_port(out: &mut Vec<u8>, port: &Port) {
    out.put_u16(to_port16(port.number));
    out.put(&port.hw_addr);
    out.put(&port.name);
    out.put_u32(port.config);
    out.put_u32(port.state & state::LINK_DOWN);
    for bits in [port.curr, port.advertised, port.supported, port.peer] {
        out.put_u32(features_10(bits));
    }
}

fn port_status(status: &PortStatus) -> Vec<u8> {
    let mut body = vec![status.reason, 0, 0, 0, 0, 0, 0, 0];
    put_port(&mut body, &status.port);
    message(k::PORT_STATUS, 0, &body)
}

fn packet_in(packet: &PacketIn) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u32(packet.buffer_id);
    body.put_u16(packet.total_len);
    body.put_u16(to_port16(packet.matching.in_port().unwrap_or(u32::MAX)));
    body.put(&[PacketIn::reason_in(VERSION, packet.reason), 0]);
    body.put(&packet.data);
    message(k::PACKET_IN, 0, &body)
}

fn flow_removed(removed: &FlowRemoved) -> Vec<u8> {
    let mut body = Vec::new();
    matching::put(&removed.matching, &mut body);
    body.put_u64(removed.cookie);
    body.put_u16(removed.priority);
    body.put(&[removed.reason, 0]);
    body.put_u32(removed.duration_sec);
    body.put_u32(removed.duration_nsec);
    body.put_u16(removed.idle_timeout);
    body.zeros(2);
    body.put_u64(removed.packet_count);
    body.put_u64(removed.byte_count);
    message(k::FLOW_REMOVED, 0, &body)
}

/// A statistics reply, split into messages between entries.
struct Reply {
    xid: u32,
    /// The bytes before the entries of each message.
    head: Vec<u8>,
    done: Vec<Vec<u8>>,
    body: Vec<u8>,
}

impl Reply {
    /// A reply in the standard's form.
    fn standard(xid: u32, number: u16) -> Self {
        let mut head = Vec::new();
        head.put_u16(number);
        head.zeros(2);
        Self::new(xid, head)
    }

    /// A reply in Nicira's form.
    fn nicira(xid: u32, number: u32) -> Self {
        let mut head = Vec::new();
        head.put_u16(STATS_VENDOR);
        head.zeros(2);
        head.put_u32(NX_VENDOR);
        head.put_u32(number);
        head.zeros(4);
        Self::new(xid, head)
    }

    /// A reply of the form that was asked for, by its numbers in the standard and Nicira's.
    fn in_form(xid: u32, form: StatsForm, number: u16, nicira: u32) -> Self {
        match form {
            StatsForm::Nicira => Self::nicira(xid, nicira),
            _ => Self::standard(xid, number),
        }
    }

    fn new(xid: u32, head: Vec<u8>) -> Self {
        Self {
            xid,
            body: head.clone(),
            head,
            done: Vec::new(),
        }
    }

    fn add(&mut self, entry: &[u8]) {
        if HEADER_LEN + self.head.len() + entry.len() > MAX_MESSAGE {
            return; // no message can carry it, as in OpenFlow 1.3
        }
        if HEADER_LEN + self.body.len() + entry.len() > MAX_MESSAGE {
            let body = std::mem::replace(&mut self.body, self.head.clone());
            self.done.push(body);
        }
        self.body.put(entry);
    }

    fn finish(mut self, more: bool) -> Vec<Vec<u8>> {
        self.done.push(self.body);
        let last = self.done.len() - 1;
        let numbered = self.done.into_iter().enumerate();
        numbered
            .map(|(index, mut body)| {
                patch_u16(&mut body, 2, if index < last || more { MORE } else { 0 });
                message(kind::STATS_REPLY, self.xid, &body)
            })
            .collect()
    }
}

fn stats_reply(xid: u32, more: bool, content: &MultipartReply, form: StatsForm) -> Vec<Vec<u8>> {
    let start = |number| Reply::standard(xid, number);
    let mut reply;
    match content {
        MultipartReply::Desc(desc) => {
            reply = start(stats::DESC);
            let mut body = Vec::new();
            desc.put(&mut body);
            reply.add(&body);
        }
        MultipartReply::Flow(flows) => {
            reply = Reply::in_form(xid, form, stats::FLOW, NICIRA_FLOW);
            for flow in flows {
                reply.add(&match form {
                    StatsForm::Nicira => nicira_flow_stats(flow),
                    _ => flow_stats(flow),
                });
            }
        }
        MultipartReply::Aggregate {
            packet_count,
            byte_count,
            flow_count,
        } => {
            reply = Reply::in_form(xid, form, stats::AGGREGATE, NICIRA_AGGREGATE);
            let mut body = Vec::new();
            body.put_u64(*packet_count);
            body.put_u64(*byte_count);
            body.put_u32(*flow_count);
            body.zeros(4);
            reply.add(&body);
        }
        MultipartReply::Table(tables) => {
            reply = start(stats::TABLE);
            tables
                .iter()
                .for_each(|table| reply.add(&table_stats(table)));
        }
        MultipartReply::PortStats(ports) => {
            reply = start(stats::PORT_STATS);
            ports.iter().for_each(|port| reply.add(&port_stats(port)));
        }
        MultipartReply::Queue(queues) => {
            reply = start(stats::QUEUE);
            for queue in queues {
                let mut body = Vec::new();
                body.put_u16(to_port16(queue.port_no));
                body.zeros(2);
                body.put_u32(queue.queue_id);
                for count in [queue.tx_bytes, queue.tx_packets, queue.tx_errors] {
                    body.put_u64(count);
                }
                reply.add(&body);
            }
        }
        MultipartReply::PortDesc(ports) => {
            reply = start(stats::PORT_DESC);
            for port in ports {
                let mut body = Vec::new();
                put_port(&mut body, port);
                reply.add(&body);
            }
        }
        other => {
            let Some((number, entries)) = groups::stats(other, form) else {
                return Vec::new();
            };
            reply = Reply::nicira(xid, number);
            entries.iter().for_each(|entry| reply.add(entry));
        }
    }
    reply.finish(more)
}

fn flow_stats(flow: &FlowStats) -> Vec<u8> {
    let mut out = vec![0, 0, flow.table_id, 0];
    matching::put(&flow.matching, &mut out);
    out.put_u32(flow.duration_sec);
    out.put_u32(flow.duration_nsec);
    out.put_u16(flow.priority);
    out.put_u16(flow.idle_timeout);
    out.put_u16(flow.hard_timeout);
    out.zeros(6);
    out.put_u64(flow.cookie);
    out.put_u64(flow.packet_count);
    out.put_u64(flow.byte_count);
    out.extend(actions::of_instructions(&flow.instructions));
    patch_length(&mut out, 0, 0);
    out
}

fn nicira_flow_stats(flow: &FlowStats) -> Vec<u8> {
    let mut out = vec![0, 0, flow.table_id, 0];
    out.put_u32(flow.duration_sec);
    out.put_u32(flow.duration_nsec);
    out.put_u16(flow.priority);
    out.put_u16(flow.idle_timeout);
    out.put_u16(flow.hard_timeout);
    let nxm = matching::to_nxm(&flow.matching);
    out.put_u16(u16::try_from(nxm.len()).unwrap_or(u16::MAX));
    out.put_u16(flow.idle_age);
    out.put_u16(flow.importance);
    out.put_u64(flow.cookie);
    out.put_u64(flow.packet_count);
    out.put_u64(flow.byte_count);
    out.put(&nxm);
    out.zeros(padded(nxm.len()) - nxm.len());
    out.extend(actions::of_instructions(&flow.instructions));
    patch_length(&mut out, 0, 0);
    out
}

fn table_stats(table: &TableStats) -> Vec<u8> {
    let mut out = vec![table.table_id, 0, 0, 0];
    out.zeros(32);
    out.put_u32(TABLE_WILDCARDS);
    out.put_u32(TABLE_ENTRIES);
    out.put_u32(table.active_count);
    out.put_u64(table.lookup_count);
    out.put_u64(table.matched_count);
    out
}

fn port_stats(port: &PortStats) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u16(to_port16(port.port_no));
    out.zeros(6);
    port.put_traffic(&mut out);
    port.put_ethernet_errors(&mut out);
    out
}
