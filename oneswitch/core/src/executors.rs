//! Which switches run the pipeline of which port, and so which rules each of them needs (design: "which switches get a rule").

use crate::api::SwitchIndex;
use crate::mutants::{mutant, Fault};
use crate::ports::PortMap;
use crate::rule::Rule;
use crate::switch_set::SwitchSet;
use openflow13::Match;
use std::collections::{BTreeMap, BTreeSet};

/// The hypervisor also runs what enters at no mapped port: packet-outs from the controller, unknown ports.
pub const HUB: SwitchIndex = 0;

/// A snapshot derived from the port map; comparing two of them tells what must be installed and removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executors {
    by_port: BTreeMap<u32, SwitchSet>,
    all: SwitchSet,
    /// Some rule changes in_port, so any rule can apply at any executor.
    everywhere: bool,
}

impl Executors {
    pub fn derive(ports: &PortMap, everywhere: bool) -> Self {
        let by_port: BTreeMap<u32, SwitchSet> = ports
            .iter()
            .map(|p| (p.number, p.locations().map(|l| l.switch).collect()))
            .collect();
        Self::of(by_port, everywhere)
    }

    fn of(by_port: BTreeMap<u32, SwitchSet>, everywhere: bool) -> Self {
        let all = by_port
            .values()
            .fold(SwitchSet::of(HUB), |all, s| all.union(*s));
        Self {
            by_port,
            all,
            everywhere,
        }
    }

    /// After `port` has moved to `switch`.
    pub fn moved(&self, port: u32, switch: SwitchIndex) -> Self {
        let mut by_port = self.by_port.clone();
        by_port.insert(port, SwitchSet::of(switch));
        Self::of(by_port, self.everywhere)
    }

    /// Matches that cover the rules whose copies at `switch` are gone in `new`.
    pub fn losses(&self, new: &Self, switch: SwitchIndex) -> Vec<Match> {
        if !self.all.contains(switch) {
            return Vec::new();
        }
        if !new.all.contains(switch) || self.everywhere && !new.everywhere {
            return vec![Match::any()];
        }
        let ports: BTreeSet<u32> = self
            .by_port
            .keys()
            .chain(new.by_port.keys())
            .copied()
            .collect();
        let lost = |port: &u32| {
            self.of_in_port(Some(*port)).contains(switch)
                && !new.of_in_port(Some(*port)).contains(switch)
        };
        ports
            .into_iter()
            .filter(lost)
            .map(|port| Match::any().with_in_port(port))
            .collect()
    }

    pub fn is_everywhere(&self) -> bool {
        self.everywhere
    }

    pub fn all(&self) -> SwitchSet {
        self.all
    }

    /// The switches that a match on `in_port` (or on no port) concerns.
    pub fn of_in_port(&self, in_port: Option<u32>) -> SwitchSet {
        match in_port {
            Some(port) if !self.everywhere => self
                .by_port
                .get(&port)
                .copied()
                .unwrap_or(SwitchSet::of(HUB)),
            _ => self.all,
        }
    }

    pub fn of_rule(&self, rule: &Rule) -> SwitchSet {
        self.of_in_port(rule.in_port())
    }

    /// Whether the copies of `rule` have no idle timers of their own. Those of a moving port's rules keep theirs where they had them.
    pub fn share_idle_timer(&self, rule: &Rule) -> bool {
        (self.everywhere || rule.in_port().is_none()) && self.of_rule(rule).len() > 1
    }

    /// Where a packet-out that claims to come from `port` runs: while a port moves, at its old home.
    pub fn of_packet_out(&self, ports: &PortMap, port: u32) -> SwitchIndex {
        if mutant(Fault::PacketOutAtHub) {
            return HUB;
        }
        ports.get(port).map_or(HUB, |p| p.home.switch)
    }
}
