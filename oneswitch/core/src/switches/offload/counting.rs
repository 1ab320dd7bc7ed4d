//! Counts: of rules, as hints for their writer, and of meters, for the writer and for the counters of the virtual port.

use crate::api::Bridge;
use crate::layout::offload;
use crate::offload::events::OffloadEvent;
use crate::offload::flows::Counted;
use crate::server::Server;
use crate::switch_set::SwitchSet;
use crate::switches::reads::{Parts, Purpose};
use crate::switches::Switches;
use foldhash::HashMap;
use openflow13::{meter_no, MultipartReply, MultipartRequest};
use std::time::Instant;

/// The meters of all ports: OpenFlow 1.3 can ask for one meter or for all.
pub(super) const METERS: MultipartRequest = MultipartRequest::Meter {
    meter: meter_no::ALL,
};

impl Switches {
    /// Requests the counts that writers are to be told.
    pub fn read_counts(&mut self, server: &mut Server, now: Instant) {
        let due = server.offload.reports_due(now);
        for number in due {
            let from = self.places(server, number);
            if from.is_empty() {
                server.offload.reported(number, now);
                continue;
            }
            let rules = MultipartRequest::Flow(offload::request(number));
            self.read(Purpose::OffloadCounts(number), Bridge::Edge, from, rules);
            self.read(Purpose::OffloadMeters(number), Bridge::Edge, from, METERS);
        }
    }

    /// Returns the switches in service that have rules of a port.
    pub fn places(&self, server: &Server, number: u32) -> SwitchSet {
        let port = server.offload.ports.get(&number);
        let places = port.into_iter().flat_map(|port| port.places.keys());
        places.copied().filter(|s| self.has_edge(*s)).collect()
    }

    /// Tells a writer the packets of rules that have changed.
    pub fn counts_answered(
        &mut self,
        server: &mut Server,
        number: u32,
        parts: &Parts,
        now: Instant,
    ) {
        server.offload.reported(number, now);
        let Some(port) = server.offload.ports.get_mut(&number) else {
            return;
        };
        let Some(writer) = port.writer.as_ref().map(|writer| writer.id) else {
            return;
        };
        let mut packets: HashMap<u64, u64> = HashMap::default();
        for (_, part) in parts {
            if let MultipartReply::Flow(flows) = part {
                for flow in flows {
                    *packets.entry(flow.cookie).or_default() += flow.packet_count;
                }
            }
        }
        let changed = packets.into_iter().filter(|(rule, packets)| {
            let flow = port.flows.get_mut(rule);
            flow.is_some_and(|flow| std::mem::replace(&mut flow.told, *packets) != *packets)
        });
        let changed: Vec<_> = changed.collect();
        if !changed.is_empty() {
            let counted = OffloadEvent::Counted(changed);
            server.offload.events.put(writer, counted);
        }
    }

    /// Keeps the counts of meters and tells the writer.
    pub fn meters_answered(&mut self, server: &mut Server, number: u32, parts: &Parts) {
        see(server, number, parts);
        tell_totals(server, number);
    }

    /// Keeps the final counts of rules that leave.
    pub fn drain_answered(&mut self, server: &mut Server, id: u64, parts: &Parts, is_lost: bool) {
        let Some(number) = server.offload.drains.list.get(&id).map(|drain| drain.port) else {
            return;
        };
        see(server, number, parts);
        let batch = self.verdicts.current_batch();
        if let Some(drain) = server.offload.drains.answered(id, is_lost, batch) {
            self.drained(server, drain);
        }
    }
}

/// Keeps the counts of reported meters. A smaller one than before means that the switch has lost what it had counted.
pub fn see(server: &mut Server, number: u32, parts: &Parts) {
    for (switch, part) in parts {
        for (counter, counted) in metered(number, part) {
            let port = server.offload.ports.get_mut(&number);
            let lost = port.and_then(|port| port.see(*switch, counter, counted));
            server.keep_offloaded(number, lost.map(|lost| (counter, lost)));
        }
    }
}

/// Returns the packets that a port's counters have counted at a switch.
pub fn metered(number: u32, part: &MultipartReply) -> impl Iterator<Item = (u16, Counted)> + '_ {
    let meters = match part {
        MultipartReply::Meter(meters) => meters.as_slice(),
        _ => &[],
    };
    meters.iter().filter_map(move |meter| {
        let (of, counter) = offload::counter_of(meter.meter_id);
        let counted = Counted {
            packets: meter.packet_in_count,
            bytes: meter.byte_in_count,
        };
        (of == number).then_some((counter, counted))
    })
}

/// Tells a port's writer the totals that have changed.
pub(super) fn tell_totals(server: &mut Server, number: u32) {
    let Some(port) = server.offload.ports.get_mut(&number) else {
        return;
    };
    let mut totals = port.metered();
    let gone = server.ports.get(number).map(|port| &port.offloaded);
    for (counter, counted) in gone.into_iter().flatten() {
        let total = totals.entry(*counter).or_default();
        *total = total.plus(*counted);
    }
    let Some(writer) = &mut port.writer else {
        return;
    };
    let told = |(counter, total): &(u16, Counted)| {
        writer.told.get(counter).copied().unwrap_or_default() == *total
    };
    let changed: Vec<_> = totals.into_iter().filter(|total| !told(total)).collect();
    writer.told.extend(changed.iter().copied());
    if !changed.is_empty() {
        let carried = OffloadEvent::Carried(changed);
        server.offload.events.put(writer.id, carried);
    }
}
