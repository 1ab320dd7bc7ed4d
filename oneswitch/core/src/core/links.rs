//! Connections of other versions than OpenFlow 1.3 to the bridges: messages of controllers that need them wait for them.

use crate::api::SwitchIndex;
use crate::controllers::Incoming;
use crate::core::Core;
use crate::switch_set::SwitchSet;
use openflow13::openflow15;
use std::time::{Duration, Instant};
use tracing::error;

/// The time that messages of controllers wait for connections.
const PATIENCE: Duration = Duration::from_secs(1);

/// The version of such a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// OpenFlow 1.0, for flags of ports and actions of rules (switches/version10.rs).
    Version10,
    /// OpenFlow 1.5, for messages (switches/newer.rs), and properties of copies of groups (switches/properties.rs).
    Version15,
    /// OpenFlow 1.4 to `edge`, for counters of ports (switches/port_counters.rs).
    PortCounters,
}

#[derive(Debug, Default)]
pub struct Links {
    /// Messages of controllers wait for these since then.
    awaited: Option<(Link, Instant)>,
    /// Switches that messages have waited for in vain, for each kind of connection.
    given_up: [SwitchSet; 3],
}

impl Links {
    pub fn are_awaited(&self) -> bool {
        self.awaited.is_some()
    }
}

impl Core {
    /// Tells whether groups may have properties that only OpenFlow 1.5 can say.
    pub fn wants_group_properties(&self) -> bool {
        self.switches.properties.are_needed || self.controllers.speak(openflow15::VERSION)
    }

    /// Tells whether OpenFlow 1.0 may have to say, or ask, something.
    pub fn wants_version10(&self) -> bool {
        self.switches.version10.are_needed || self.wants_ages()
    }

    /// A connection of OpenFlow 1.5 to `virt` of a switch is there.
    pub fn properties_up(&mut self, switch: SwitchIndex, now: Instant) {
        self.switches.properties_up(switch);
        self.link_up(Link::Version15, switch, now);
    }

    /// A connection of OpenFlow 1.0 to `virt` of a switch is there.
    pub fn version10_up(&mut self, switch: SwitchIndex, now: Instant) {
        self.ages_up(switch);
        self.switches.version10.rounds.link_up(switch);
        self.switches.require_version10(SwitchSet::of(switch));
        self.link_up(Link::Version10, switch, now);
    }

    pub fn version10_down(&mut self, switch: SwitchIndex, now: Instant) {
        self.ages_down(switch, now);
        self.switches.version10.link_down(switch);
        self.switches.require_version10(SwitchSet::of(switch));
        self.settle(now);
    }

    /// Handles a message on such a connection.
    pub fn version10_told(&mut self, switch: SwitchIndex, frame: &[u8], now: Instant) {
        self.ages_told(switch, frame, now);
        self.switches
            .version10_told(&self.truth, &self.server, switch, frame);
        self.settle(now);
    }

    pub(in crate::core) fn link_up(&mut self, link: Link, switch: SwitchIndex, now: Instant) {
        self.links.given_up[link as usize].remove(switch);
        let is_awaited = self.links.awaited.is_some_and(|(of, _)| of == link);
        if is_awaited && self.unlinked(link).is_empty() {
            self.links.awaited = None;
        }
        self.settle(now);
    }

    /// Holds a message until the switches can get what only such connections say. Returns false if it can be handled, or refused, now.
    pub(in crate::core) fn holds_until_linked(
        &mut self,
        incoming: Incoming<'_>,
        link: Link,
        now: Instant,
    ) -> bool {
        match link {
            Link::Version10 => self.switches.version10.are_needed = true,
            Link::Version15 => self.switches.properties.are_needed = true,
            Link::PortCounters => self.switches.port_counters.are_needed = true,
        }
        let lacking = self.unlinked(link);
        let is_hopeless = lacking.minus(self.links.given_up[link as usize]).is_empty();
        if is_hopeless || self.commit.is_some() {
            return false;
        }
        let frame = (incoming.origin.controller, incoming.sent.into());
        self.held.put(frame);
        self.links.awaited = Some((link, now));
        true
    }

    /// Returns the switches that need such a connection and lack it: those that execute rules, or all, whose ports have counters.
    pub(in crate::core) fn unlinked(&self, link: Link) -> SwitchSet {
        let linked = match link {
            Link::PortCounters => {
                let edges = (0..self.switches.list.len()).map(|at| (at, &self.switches.list[at]));
                let up = edges.filter(|(_, s)| s.edge.is_up()).map(|(at, _)| at);
                let up: SwitchSet = up.collect();
                return up.minus(self.switches.port_counters.links);
            }
            Link::Version10 => self.switches.version10.rounds.links(),
            Link::Version15 => self.switches.properties.rounds.links(),
        };
        let executors = self.server.executors.all();
        executors.intersection(self.switches.up()).minus(linked)
    }

    /// Tells whether some switch lacks such a connection, and tells the operator what to do. `what`: that which is refused.
    pub(in crate::core) fn refuses_unlinked(&self, link: Link, what: &str) -> bool {
        let lacking = self.unlinked(link);
        if !lacking.is_empty() {
            let switches = self.switches.switch_names(lacking);
            let (version, protocol) = match link {
                Link::Version10 => ("1.0", "OpenFlow10"),
                Link::Version15 => ("1.5", "OpenFlow15"),
                Link::PortCounters => ("1.4", "OpenFlow14"),
            };
            error!(target: "northbound", %switches, "refuses {what}: no connection of OpenFlow {version} to the bridge virt of these switches; if its protocols are set there, add {protocol}");
        }
        !lacking.is_empty()
    }

    pub(in crate::core) fn links_deadline(&self) -> Option<Instant> {
        self.links.awaited.map(|(_, since)| since + PATIENCE)
    }

    /// Ends the waiting that has taken too long.
    pub(in crate::core) fn stop_awaiting_links(&mut self, now: Instant) {
        if self.links_deadline().is_none_or(|at| now < at) {
            return;
        }
        if let Some((link, _)) = self.links.awaited.take() {
            self.links.given_up[link as usize] = self.unlinked(link);
        }
        self.handle_settled_holds(now);
    }
}
