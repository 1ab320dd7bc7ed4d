//! The writers: who may offload flows of a port, and what happens when they are gone.

use crate::offload::events::OffloadEvent;
use crate::offload::flows::Totals;
use crate::offload::ports::OffloadPort;
use crate::offload::requests::{OffloadHello, WriterId};
use crate::offload::Offload;
use std::time::{Duration, Instant};

/// Time without a line after which a writer is suspected to be stopped.
const SILENCE: Duration = Duration::from_millis(2_500);
/// Time that a suspected writer has left. oneswitchd itself may have been stopped: then the writer's lines are waiting to be read.
const PROBATION: Duration = Duration::from_millis(250);
/// Time without a writer after which a port's rules are removed.
const ALONE: Duration = Duration::from_millis(2_500);
/// Time between two reports of counts.
const REPORT: Duration = Duration::from_secs(1);
/// Above this number of flows, reports are rarer: each rule of a report costs its switch some microseconds.
const REPORTED_PER_SECOND: usize = 16_384;

#[derive(Debug)]
pub struct Writer {
    pub id: WriterId,
    /// When it is suspected to be stopped, unless it says something.
    suspect_at: Instant,
    is_suspect: bool,
    /// When its next report of counts is due; `None` while one is being read.
    pub report_at: Option<Instant>,
    /// The totals of counters that it was told.
    pub told: Totals,
    pub listing: Listing,
}

/// A writer's request for the list of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    Idle,
    /// It waits for rules that are leaving.
    Asked,
    /// The meters are being read.
    Reading,
}

impl Writer {
    fn new(id: WriterId, now: Instant) -> Self {
        Self {
            id,
            suspect_at: now + SILENCE,
            is_suspect: false,
            report_at: Some(now + REPORT),
            told: Totals::new(),
            listing: Listing::Idle,
        }
    }

    pub fn heard(&mut self, now: Instant) {
        (self.suspect_at, self.is_suspect) = (now + SILENCE, false);
    }

    /// Plans the next report of a port's counts.
    pub fn reported(&mut self, flows: usize, now: Instant) {
        let rounds = 1 + flows / REPORTED_PER_SECOND;
        self.report_at = Some(now + REPORT * rounds as u32);
    }

    /// Tells whether it is to be disconnected.
    fn is_silent(&mut self, now: Instant) -> bool {
        if now < self.suspect_at {
            return false;
        }
        if !std::mem::replace(&mut self.is_suspect, true) {
            self.suspect_at = now + PROBATION;
            return false;
        }
        true
    }
}

/// The state of a port's rules for a new writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// Its own rules, or those of an unknown writer.
    Known,
    /// The rules of another instance, which must be removed.
    Strange,
}

impl Offload {
    /// Connects a writer to its port, whose owner is known to be right.
    ///
    /// # Errors
    /// The reason why another writer keeps the port.
    pub fn admit(
        &mut self,
        id: WriterId,
        hello: &OffloadHello,
        now: Instant,
    ) -> Result<Admitted, String> {
        let port = self.ports.entry(hello.port).or_default();
        let is_other = port.last.is_some_and(|(last, _)| last != hello.instance);
        let (number, instance) = (hello.port, hello.instance);
        match port.last {
            Some((last, _)) if is_other && port.writer.is_some() => {
                return Err(format!("port {number} has a connected writer, instance {last:032x}; expected that one, or that it disconnects first"));
            }
            Some((_, epoch)) if !is_other && epoch > hello.epoch => {
                return Err(format!("epoch {} of instance {instance:032x}; expected {epoch} or greater: a later life of this instance has port {number}", hello.epoch));
            }
            _ => {}
        }
        if let Some(old) = port.writer.take() {
            self.writers.remove(&old.id);
            let detail = format!(
                "another connection of instance {instance:032x}, epoch {}, has taken port {number}",
                hello.epoch
            );
            self.events.error(old.id, "stale-writer", detail);
            self.events.put(old.id, OffloadEvent::Close);
        }
        port.writer = Some(Writer::new(id, now));
        port.last = Some((hello.instance, hello.epoch));
        (port.alone_since, port.is_orphan) = (None, false);
        self.writers.insert(id, number);
        Ok(match is_other {
            true => Admitted::Strange,
            false => Admitted::Known,
        })
    }

    pub fn set_listing(&mut self, number: u32, listing: Listing) {
        let port = self.ports.get_mut(&number);
        if let Some(writer) = port.and_then(|port| port.writer.as_mut()) {
            writer.listing = listing;
        }
    }

    pub fn port_of(&self, id: WriterId) -> Option<u32> {
        self.writers.get(&id).copied()
    }

    /// Disconnects a writer.
    pub fn part(&mut self, id: WriterId, now: Instant) {
        let number = self.writers.remove(&id);
        if let Some(port) = number.and_then(|number| self.ports.get_mut(&number)) {
            (port.writer, port.alone_since) = (None, Some(now));
        }
    }

    /// Disconnects writers that have been silent for long.
    pub fn part_silent(&mut self, now: Instant) {
        let mut silent = Vec::new();
        for (number, port) in &mut self.ports {
            let is_busy = port.is_busy();
            let Some(writer) = &mut port.writer else {
                continue;
            };
            if is_busy {
                writer.heard(now); // It is not being read.
            } else if writer.is_silent(now) {
                silent.push((*number, writer.id));
            }
        }
        for (number, id) in silent {
            let detail = format!("nothing was received for {} ms; expected a line each second, such as {{\"alive\": null}}; the rules of port {number} are removed", (SILENCE + PROBATION).as_millis());
            self.events.error(id, "silent", detail);
            self.events.put(id, OffloadEvent::Close);
            self.part(id, now);
            if let Some(port) = self.ports.get_mut(&number) {
                port.alone_since = now.checked_sub(ALONE); // It was away before.
            }
        }
    }

    /// Returns ports whose writer stayed away, once for each.
    pub fn orphans(&mut self, now: Instant) -> Vec<u32> {
        let is_alone = |port: &OffloadPort| port.alone_since.is_some_and(|at| at + ALONE <= now);
        let new = |port: &mut OffloadPort| is_alone(port) && !port.is_orphan;
        let ports = self.ports.iter_mut();
        let orphans = ports.filter_map(|(number, port)| {
            let is_new = new(port);
            port.is_orphan |= is_new;
            is_new.then_some(*number)
        });
        orphans.collect()
    }

    /// Returns when a writer is to be suspected, a port becomes an orphan, or a report is due.
    pub fn writers_deadline(&self) -> Option<Instant> {
        let deadlines = self.ports.values().flat_map(|port| {
            let writer = port.writer.as_ref();
            let alone = port.alone_since.filter(|_| !port.is_orphan);
            [
                writer.map(|w| w.suspect_at),
                writer
                    .filter(|_| port.is_active())
                    .and_then(|w| w.report_at),
                alone.map(|at| at + ALONE),
            ]
        });
        deadlines.flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_many_flows_are_rarer() {
        let now = Instant::now();
        let mut writer = Writer::new(WriterId(1), now);
        for (flows, seconds) in [(0, 1), (16_383, 1), (16_384, 2), (40_000, 3)] {
            writer.reported(flows, now);
            assert_eq!(writer.report_at, Some(now + Duration::from_secs(seconds)));
        }
    }
}
