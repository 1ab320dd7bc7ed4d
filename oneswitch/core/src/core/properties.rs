//! Properties of groups that controllers of OpenFlow 1.5 write (switches/properties.rs): their messages wait for the connections that tell them.

use crate::api::SwitchIndex;
use crate::controllers::Incoming;
use crate::core::Core;
use crate::switch_set::SwitchSet;
use openflow13::openflow15;
use std::time::{Duration, Instant};
use tracing::error;

/// The time that messages of controllers wait for connections.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct PropertyLinks {
    /// Messages of controllers wait since then.
    pub since: Option<Instant>,
    /// Switches that messages have waited for in vain.
    given_up: SwitchSet,
}

impl Core {
    /// Tells whether groups may have properties that only OpenFlow 1.5 can say.
    pub fn wants_group_properties(&self) -> bool {
        self.switches.properties.are_needed || self.controllers.speak(openflow15::VERSION)
    }

    /// A connection of OpenFlow 1.5 to `virt` of a switch is there.
    pub fn properties_up(&mut self, switch: SwitchIndex, now: Instant) {
        self.switches.properties_up(switch);
        self.property_links.given_up.remove(switch);
        if self
            .switches
            .without_properties(self.server.executors.all())
            .is_empty()
        {
            self.property_links.since = None;
        }
        self.settle(now);
    }

    pub fn properties_down(&mut self, switch: SwitchIndex, now: Instant) {
        self.switches.properties_down(switch);
        self.settle(now);
    }

    /// Handles a message on such a connection.
    pub fn properties_told(&mut self, switch: SwitchIndex, frame: &[u8], now: Instant) {
        self.switches
            .properties_told(&self.truth, &self.server, switch, frame);
        self.settle(now);
    }

    /// Holds a message about a group with such properties until the switches can get them. Returns false if it can be handled, or refused,
    /// now.
    pub(in crate::core) fn holds_until_linked(
        &mut self,
        incoming: Incoming<'_>,
        now: Instant,
    ) -> bool {
        self.switches.properties.are_needed = true;
        let lacking = self.unlinked();
        let is_hopeless = lacking.minus(self.property_links.given_up).is_empty();
        if is_hopeless || self.commit.is_some() {
            return false;
        }
        let frame = (incoming.origin.controller, incoming.sent.into());
        self.held.put(frame);
        self.property_links.since = Some(now);
        true
    }

    /// Returns the switches that need the properties of groups and cannot get them.
    fn unlinked(&self) -> SwitchSet {
        self.switches
            .without_properties(self.server.executors.all())
    }

    /// Tells whether some switch cannot get the properties of a group, and tells the operator what to do.
    pub(in crate::core) fn refuses_properties(&self) -> bool {
        let lacking = self.unlinked();
        if !lacking.is_empty() {
            let switches = self.switches.switch_names(lacking);
            error!(target: "northbound", %switches, "refuses a group with selection_method: no connection of OpenFlow 1.5 to the bridge virt of these switches; if its protocols are set there, add OpenFlow15");
        }
        !lacking.is_empty()
    }

    pub(in crate::core) fn property_links_deadline(&self) -> Option<Instant> {
        self.property_links.since.map(|since| since + PATIENCE)
    }

    /// Ends the waiting that has taken too long.
    pub(in crate::core) fn stop_awaiting_property_links(&mut self, now: Instant) {
        if self.property_links_deadline().is_none_or(|at| now < at) {
            return;
        }
        self.property_links.given_up = self.unlinked();
        self.property_links.since = None;
        self.handle_settled_holds(now);
    }
}
