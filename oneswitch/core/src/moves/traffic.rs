//! Measured traffic: the bytes that enter each port, for the choice of the switch where ports are gathered.
//!
//! oneswitchd reads the interfaces' counters every few seconds while it may have to choose, and once more when it chooses.

use crate::api::{Bridge, SwitchIndex};
use crate::moves::Moves;
use crate::server::ports::{Location, VirtualPort};
use crate::switch_set::SwitchSet;
use crate::switches::reads::{Parts, Purpose};
use crate::switches::Below;
use openflow13::{port_no, MultipartReply, MultipartRequest};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time between two readings.
const PERIOD: Duration = Duration::from_secs(5);
/// The time for which a choice waits for the last reading.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Traffic {
    /// The received bytes of each port's interface at the last reading.
    seen: BTreeMap<u32, (Location, u64)>,
    /// The bytes that entered each port lately: with each reading, earlier ones count half.
    entered: BTreeMap<u32, u64>,
    /// The pending request.
    asked: Option<u64>,
    /// The time of the next reading; `None`: once the bridges are up.
    next: Option<Instant>,
    /// The time since which a choice waits for a reading.
    wanted: Option<Instant>,
}

impl Traffic {
    /// Returns when [`Moves::measure_traffic`] next has work.
    pub fn deadline(&self) -> Option<Instant> {
        let next = self.next.filter(|_| self.asked.is_none());
        let wanted = self.wanted.map(|since| since + PATIENCE);
        next.into_iter().chain(wanted).min()
    }

    /// Sums the bytes that entered at each switch lately.
    pub fn by_switch(&self, below: &Below<'_>) -> BTreeMap<SwitchIndex, u64> {
        let mut sums = BTreeMap::new();
        for port in below.server.ports.iter() {
            if let Some(bytes) = self.entered.get(&port.number) {
                let sum: &mut u64 = sums.entry(port.home.switch).or_default();
                *sum = sum.saturating_add(*bytes);
            }
        }
        sums
    }

    /// Asks for the counters if a choice needs them; returns whether it can be made now.
    pub fn is_ready(&mut self, below: &mut Below<'_>) -> bool {
        if self.seen.is_empty() {
            // The first reading shows no traffic.
            return true;
        }
        if self.wanted.is_none() && self.asked.is_none() {
            self.ask(below);
        }
        let since = *self.wanted.get_or_insert(below.now);
        let is_ready = self.asked.is_none() || since + PATIENCE <= below.now;
        self.wanted = self.wanted.filter(|_| !is_ready);
        is_ready
    }

    /// Stops waiting for a reading: nothing has to be chosen any more.
    pub fn end_choice(&mut self) {
        self.wanted = None;
    }

    fn ask(&mut self, below: &mut Below<'_>) {
        let homes = homes(below);
        let request = MultipartRequest::PortStats { port: port_no::ANY };
        let asked = below
            .switches
            .read(Purpose::Traffic, Bridge::Edge, homes, request);
        self.asked = Some(asked);
        self.next = Some(below.now + PERIOD);
    }

    fn answered(&mut self, below: &Below<'_>, parts: Parts) {
        let mut counted = BTreeMap::new();
        for (switch, part) in parts {
            if let MultipartReply::PortStats(list) = part {
                let list = list.into_iter().filter(|stats| stats.rx_bytes != u64::MAX);
                counted.extend(list.map(|stats| ((switch, stats.port_no), stats.rx_bytes)));
            }
        }
        let now = |port: &VirtualPort| {
            let edge = &below.switches.list[port.home.switch].edge;
            let interface = edge.number_of(&port.home.interface)?;
            counted.get(&(port.home.switch, interface)).copied()
        };
        let read = |port: &VirtualPort| Some((port.number, (port.home.clone(), now(port)?)));
        let read = below.server.ports.iter().filter_map(read).collect();
        let before = std::mem::replace(&mut self.seen, read);
        let earlier = std::mem::take(&mut self.entered);
        for (number, (home, counted)) in &self.seen {
            let half = earlier.get(number).map_or(0, |bytes| bytes / 2);
            let more = match before.get(number) {
                // A new interface may have the number of an old one.
                Some((at, before)) if at == home => {
                    counted.checked_sub(*before).unwrap_or(*counted)
                }
                _ => 0,
            };
            self.entered.insert(*number, half.saturating_add(more));
        }
    }
}

fn homes(below: &Below<'_>) -> SwitchSet {
    let homes = below.server.ports.iter().map(|port| port.home.switch);
    homes.collect()
}

impl Moves {
    /// Reads the counters from time to time, while ports may have to be gathered and the place is not known.
    pub fn measure_traffic(&mut self, below: &mut Below<'_>) {
        if !self.gathering.is_to_be_chosen() || below.server.executors.all().len() == 1 {
            self.traffic = Traffic::default();
            return;
        }
        let traffic = &mut self.traffic;
        if traffic.asked.is_some() || traffic.next.is_some_and(|next| next > below.now) {
            return;
        }
        let is_up = |switch: SwitchIndex| below.switches.list[switch].edge.is_up();
        if homes(below).iter().all(is_up) {
            traffic.ask(below);
        } else if traffic.next.is_some() {
            traffic.next = Some(below.now + PERIOD);
        }
    }

    pub fn traffic_answered(&mut self, below: &Below<'_>, question: u64, parts: Parts) {
        if self
            .traffic
            .asked
            .take_if(|asked| *asked == question)
            .is_some()
        {
            self.traffic.answered(below, parts);
        }
    }
}
