//! Statistics of rules, in OXS (lib/ox-stat.c).

use crate::flow::FlowRemoved;
use crate::multipart::FlowStats;
use crate::wire::{padded, patch_length, Put};

use super::fields::matching;
use super::instructions;

/// `OFPXSC_OPENFLOW_BASIC`.
const BASIC: u16 = 0x8002;

/// Fields of the class.
mod field {
    pub const DURATION: u8 = 0;
    pub const IDLE_TIME: u8 = 1;
    pub const FLOW_COUNT: u8 = 3;
    pub const PACKET_COUNT: u8 = 4;
    pub const BYTE_COUNT: u8 = 5;
}

/// A list of statistics. Unknown values, all ones, are left out.
struct Statistics(Vec<u8>);

impl Statistics {
    fn new() -> Self {
        Self(vec![0; 4])
    }

    fn header(&mut self, field: u8, length: u8) {
        self.0.put_u16(BASIC);
        self.0.put(&[field << 1, length]);
    }

    fn number(mut self, field: u8, number: u64) -> Self {
        if number != u64::MAX {
            self.header(field, 8);
            self.0.put_u64(number);
        }
        self
    }

    fn duration(self, seconds: u32, nanoseconds: u32) -> Self {
        let both = u64::from(seconds) << 32 | u64::from(nanoseconds);
        self.number(field::DURATION, both)
    }

    /// Adds the seconds since the last packet, which are one more; 0: unknown.
    fn idle_time(self, age: u16) -> Self {
        let seconds = age.checked_sub(1).map(u64::from);
        let number = seconds.map_or(u64::MAX, |seconds| seconds << 32);
        self.number(field::IDLE_TIME, number)
    }

    fn counters(self, packets: u64, bytes: u64) -> Self {
        let packets = self.number(field::PACKET_COUNT, packets);
        packets.number(field::BYTE_COUNT, bytes)
    }

    fn put(mut self, out: &mut Vec<u8>) {
        let length = self.0.len();
        patch_length(&mut self.0, 0, 2);
        self.0.zeros(padded(length) - length);
        out.put(&self.0);
    }
}

/// Encodes `ofp15_flow_desc`.
pub(super) fn describe(flow: &FlowStats) -> Vec<u8> {
    let mut out = vec![0, 0, 0, 0, flow.table_id, 0];
    out.put_u16(flow.priority);
    out.put_u16(flow.idle_timeout);
    out.put_u16(flow.hard_timeout);
    out.put_u16(flow.flags);
    out.put_u16(flow.importance);
    out.put_u64(flow.cookie);
    matching(&flow.matching).put(&mut out);
    Statistics::new()
        .duration(flow.duration_sec, flow.duration_nsec)
        .idle_time(flow.idle_age)
        .counters(flow.packet_count, flow.byte_count)
        .put(&mut out);
    out.put(&instructions::to_15(&flow.instructions));
    patch_length(&mut out, 0, 0);
    out
}

/// Encodes the body of a reply with sums over rules.
pub(super) fn aggregate(packets: u64, bytes: u64, flows: u32) -> Vec<u8> {
    let mut statistics = Statistics::new().counters(packets, bytes);
    if flows != u32::MAX {
        statistics.header(field::FLOW_COUNT, 4);
        statistics.0.put_u32(flows);
    }
    let mut out = Vec::new();
    statistics.put(&mut out);
    out
}

/// Encodes the body of `ofp15_flow_removed`.
pub(super) fn removed(removed: &FlowRemoved) -> Vec<u8> {
    let mut out = vec![removed.table_id, removed.reason];
    out.put_u16(removed.priority);
    out.put_u16(removed.idle_timeout);
    out.put_u16(removed.hard_timeout);
    out.put_u64(removed.cookie);
    matching(&removed.matching).put(&mut out);
    Statistics::new()
        .duration(removed.duration_sec, removed.duration_nsec)
        .counters(removed.packet_count, removed.byte_count)
        .put(&mut out);
    out
}
