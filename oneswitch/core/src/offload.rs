//! Flows of network functions that `edge` carries: their writers, targets and rules (docs/architecture.md, "Offload").
//!
//! A network function sits behind one virtual port. It asks for a rule per flow; packets of the flow are then rewritten in `edge` and enter
//! `virt` as if the function had sent them.

pub mod adoption;
pub mod drains;
pub mod events;
pub mod flows;
pub mod ports;
pub mod requests;
pub mod sums;
pub mod view;
pub mod writers;

use drains::Drains;
use events::{Events, OffloadEvent, OffloadRefused};
use foldhash::HashMap;
use ports::OffloadPort;
use requests::WriterId;
use std::collections::BTreeMap;
use std::time::Instant;
use sums::OpenSums;

#[derive(Debug, Default)]
pub struct Offload {
    pub ports: BTreeMap<u32, OffloadPort>,
    pub events: Events,
    pub drains: Drains,
    pub sums: OpenSums,
    /// The ports of the connected writers.
    writers: HashMap<WriterId, u32>,
    /// Installs without a verdict: port and rule, by the xid of their flow-mod.
    asked: HashMap<u32, (u32, u64)>,
}

impl Offload {
    /// Tells whether packets for a port pass the offload tables.
    pub fn is_active(&self, number: u32) -> bool {
        self.ports.get(&number).is_some_and(OffloadPort::is_active)
    }

    /// Returns the port as which packets leave that a port's counter counts; `None`: they are dropped.
    pub fn leaves_as(&self, number: u32, counter: u16) -> Option<u32> {
        let port = self.ports.get(&number);
        port.map_or(Some(number), |port| port.leaves_as(number, counter))
    }

    /// Records a sign of life of a port's writer.
    pub fn heard(&mut self, number: u32, now: Instant) {
        let port = self.ports.get_mut(&number);
        if let Some(writer) = port.and_then(|port| port.writer.as_mut()) {
            writer.heard(now);
        }
    }

    /// Returns when something is due by itself.
    pub fn deadline(&self) -> Option<Instant> {
        let deadlines = [self.writers_deadline(), self.drains.deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Refuses an install.
    pub fn refuse(&mut self, to: WriterId, number: u32, rule: u64, reason: OffloadRefused) {
        if let Some(port) = self.ports.get_mut(&number) {
            port.refuse(reason);
        }
        self.events.refused(to, rule, reason);
    }

    /// Returns ports whose writers are to be told the counts now.
    pub fn reports_due(&mut self, now: Instant) -> Vec<u32> {
        let ports = self.ports.iter_mut().filter(|(_, port)| port.is_active());
        let due = ports.filter_map(|(number, port)| {
            let report_at = &mut port.writer.as_mut()?.report_at;
            report_at.take_if(|at| *at <= now).map(|_| *number)
        });
        due.collect()
    }

    /// Plans the next report of a port's counts.
    pub fn reported(&mut self, number: u32, now: Instant) {
        if let Some(port) = self.ports.get_mut(&number) {
            let flows = port.flows.len();
            if let Some(writer) = &mut port.writer {
                writer.reported(flows, now);
            }
        }
    }

    /// Forgets an unmapped port and tells its writer; returns what it had.
    pub fn forget_port(&mut self, number: u32) -> Option<OffloadPort> {
        let port = self.ports.remove(&number)?;
        self.drains.forget_port(number);
        if let Some(writer) = &port.writer {
            self.writers.remove(&writer.id);
            let detail = format!("port {number} was unmapped; expected a mapped port");
            self.events.put(writer.id, OffloadEvent::Reset);
            self.events.error(writer.id, "port-unknown", detail);
            self.events.put(writer.id, OffloadEvent::Close);
        }
        Some(port)
    }

    /// Records the flow-mod of an install.
    pub fn asked(&mut self, xid: u32, number: u32, rule: u64) {
        self.asked.insert(xid, (number, rule));
    }

    /// Returns the port and rule of an install that a switch refused.
    pub fn take_asked(&mut self, xid: u32) -> Option<(u32, u64)> {
        self.asked.remove(&xid)
    }
}
