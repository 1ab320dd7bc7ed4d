//! Which switch runs the pipeline of which port, and so which rules each switch needs (design: "which switches get a rule").

use crate::api::SwitchIndex;
use crate::model::rule::Rule;
use crate::server::ports::{Executor, PortMap};
use crate::switch_set::SwitchSet;
use openflow13::Match;
use std::collections::{BTreeMap, BTreeSet};

/// The hypervisor: the hub of the star.
pub const HUB: SwitchIndex = 0;

/// A snapshot derived from the port map; comparing two of them shows what to install and to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executors {
    by_port: BTreeMap<u32, SwitchSet>,
    /// The executor of packets without a mapped ingress port: packet-outs from the controller, unknown ports.
    unmapped: SwitchIndex,
    all: SwitchSet,
    /// Some rule changes in_port, so any rule can apply at any executor.
    everywhere: bool,
}

impl Executors {
    /// `default`: the server's executor.
    pub fn derive(ports: &PortMap, default: Executor, everywhere: bool) -> Self {
        let by_port = ports.iter().map(|p| (p.number, p.executors())).collect();
        Self::of(by_port, default, everywhere)
    }

    fn of(by_port: BTreeMap<u32, SwitchSet>, default: Executor, everywhere: bool) -> Self {
        let of_ports = by_port
            .values()
            .fold(SwitchSet::EMPTY, |all, s| all.union(*s));
        // If all ports have one executor, it is the one bridge that everything shares.
        let unmapped = match (of_ports.only(), default) {
            (Some(switch), _) | (None, Executor::At(switch)) => switch,
            (None, Executor::Home) => HUB,
        };
        Self {
            by_port,
            unmapped,
            all: of_ports.union(SwitchSet::of(unmapped)),
            everywhere,
        }
    }

    /// Returns the executors after `port` is executed at `switch` only.
    pub fn moved(&self, port: u32, switch: SwitchIndex, default: Executor) -> Self {
        let mut by_port = self.by_port.clone();
        by_port.insert(port, SwitchSet::of(switch));
        Self::of(by_port, default, self.everywhere)
    }

    /// Returns matches that cover the rules whose copies at `switch` are absent in `new`.
    pub fn losses(&self, new: &Self, switch: SwitchIndex) -> Vec<Match> {
        if !self.all.contains(switch) {
            return Vec::new();
        }
        let unmapped = self.unmapped == switch && new.unmapped != switch;
        if !new.all.contains(switch) || self.everywhere && !new.everywhere || unmapped {
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

    /// Returns the switches for a match on `in_port` (or on no port).
    pub fn of_in_port(&self, in_port: Option<u32>) -> SwitchSet {
        match in_port {
            Some(port) if !self.everywhere => self
                .by_port
                .get(&port)
                .copied()
                .unwrap_or(SwitchSet::of(self.unmapped)),
            _ => self.all,
        }
    }

    pub fn of_rule(&self, rule: &Rule) -> SwitchSet {
        self.of_in_port(rule.in_port())
    }

    /// Tells whether the copies of `rule` have no idle timers of their own. Those of a moving port's rules keep theirs where they had them.
    pub fn share_idle_timer(&self, rule: &Rule) -> bool {
        (self.everywhere || rule.in_port().is_none()) && self.of_rule(rule).len() > 1
    }

    /// Returns where a packet-out that names `port` as in_port runs: while a port moves, at its old executor.
    pub fn of_packet_out(&self, ports: &PortMap, port: u32) -> SwitchIndex {
        ports.get(port).map_or(self.unmapped, |p| p.executes_at())
    }
}
