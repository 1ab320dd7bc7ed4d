//! Counts of rules: for their writer, for the last of a removed one, and for the counters of the virtual port.

use crate::api::{Bridge, SwitchIndex};
use crate::layout::offload;
use crate::offload::events::OffloadEvent;
use crate::offload::flows::Counted;
use crate::server::Server;
use crate::switch_set::SwitchSet;
use crate::switches::reads::{Parts, Purpose};
use crate::switches::Switches;
use openflow13::{FlowStats, MeterStats, MultipartReply, MultipartRequest};
use std::time::Instant;

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
            let request = MultipartRequest::Flow(offload::request(number, None));
            self.read(Purpose::OffloadCounts(number), Bridge::Edge, from, request);
            let request = MultipartRequest::Meter { meter: number };
            self.read(Purpose::OffloadMeter(number), Bridge::Edge, from, request);
        }
    }

    /// Returns the switches in service that have rules of a port.
    pub fn places(&self, server: &Server, number: u32) -> SwitchSet {
        let port = server.offload.ports.get(&number);
        let places = port.into_iter().flat_map(|port| port.places.keys());
        places.copied().filter(|s| self.has_edge(*s)).collect()
    }

    /// Keeps the counts of an answer, and tells the writer of those that have grown.
    pub fn counts_answered(
        &mut self,
        server: &mut Server,
        number: u32,
        parts: Parts,
        now: Instant,
    ) {
        see(server, number, parts);
        server.offload.reported(number, now);
        let Some(port) = server.offload.ports.get_mut(&number) else {
            return;
        };
        let Some(writer) = port.writer.as_ref().map(|writer| writer.id) else {
            return;
        };
        let mut grown = Vec::new();
        for rule in port.rules(|flow| !flow.is_removed()) {
            let counted = port.counted(rule);
            if let Some(flow) = port.flows.get_mut(&rule).filter(|f| f.told != counted) {
                flow.told = counted;
                grown.push((rule, counted));
            }
        }
        if !grown.is_empty() {
            server
                .offload
                .events
                .put(writer, OffloadEvent::Counted(grown));
        }
    }

    /// Keeps the final counts of rules that leave.
    pub fn drain_answered(&mut self, server: &mut Server, id: u64, parts: Parts, is_lost: bool) {
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

/// Keeps the counts of reported rules and meters.
pub fn see(server: &mut Server, number: u32, parts: Parts) {
    for (switch, part) in parts {
        match part {
            MultipartReply::Flow(flows) => flows
                .iter()
                .for_each(|flow| see_one(server, number, switch, flow)),
            MultipartReply::Meter(meters) => {
                let port = server.offload.ports.get_mut(&number);
                let place = port.and_then(|port| port.places.get_mut(&switch));
                if let Some((place, meter)) = place.zip(meters.first()) {
                    place.metered = metered(meter);
                }
            }
            _ => {}
        }
    }
}

/// Returns the packets that a port's rules have carried at a switch.
pub fn metered(meter: &MeterStats) -> Counted {
    Counted {
        packets: meter.packet_in_count,
        bytes: meter.byte_in_count,
    }
}

/// Keeps the counts of a reported rule. If they are smaller than before, the switch has lost the others.
pub(super) fn see_one(server: &mut Server, number: u32, switch: SwitchIndex, flow: &FlowStats) {
    let counted = Counted {
        packets: flow.packet_count,
        bytes: flow.byte_count,
    };
    let Some(port) = server.offload.ports.get_mut(&number) else {
        return;
    };
    let seen = port
        .places
        .get(&switch)
        .and_then(|p| p.seen.get(&flow.cookie));
    let is_less = seen.is_some_and(|seen| seen.packets > counted.packets);
    if is_less {
        port.fold(switch, flow.cookie);
    }
    port.see(switch, flow.cookie, counted);
}
