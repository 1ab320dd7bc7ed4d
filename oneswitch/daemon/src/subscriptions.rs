//! Features that need connections of their own to Open vSwitch: packets that meet no rule, what only OpenFlow 1.0 says, properties of groups,
//! counters of ports, and packet-ins by their id.

use std::collections::BTreeSet;

use oneswitch_core::Core;
use tokio::sync::watch;

use crate::events::Peer;

/// The controllers' wishes, which the connections follow.
#[derive(Default)]
pub struct Subscriptions {
    /// Packets that meet no rule.
    misses: watch::Sender<bool>,
    /// The features of OpenFlow 1.0 only: ages of rules and flags of ports.
    version10: watch::Sender<bool>,
    /// Properties of groups, which it gets.
    properties: watch::Sender<bool>,
    /// Counters of ports, which `edge` tells.
    port_counters: watch::Sender<bool>,
    /// Packet-ins of actions with these ids.
    ids: watch::Sender<BTreeSet<u16>>,
}

/// The other ends of [`Subscriptions`].
#[derive(Clone)]
pub struct Subscribed {
    pub misses: watch::Receiver<bool>,
    pub version10: watch::Receiver<bool>,
    pub properties: watch::Receiver<bool>,
    pub port_counters: watch::Receiver<bool>,
    pub ids: watch::Receiver<BTreeSet<u16>>,
}

impl Subscriptions {
    /// Begins or ends connections, as the core's controllers want them.
    pub fn follow(&self, core: &Core) {
        replace(&self.misses, core.wants_misses());
        replace(&self.version10, core.wants_version10());
        replace(&self.properties, core.wants_group_properties());
        replace(&self.port_counters, core.wants_port_counters());
        replace(&self.ids, core.collected_ids());
    }

    /// Tells whether a connection is for packet-ins that no controller wants any more.
    pub fn are_over_for(&self, peer: &Peer) -> bool {
        match peer {
            Peer::Misses(_) => !*self.misses.borrow(),
            Peer::Version10(_) => !*self.version10.borrow(),
            Peer::Properties(_) => !*self.properties.borrow(),
            Peer::PortCounters(_) => !*self.port_counters.borrow(),
            Peer::Collector(_, id) => !self.ids.borrow().contains(id),
            Peer::Controller { .. } | Peer::Switch(..) => false,
        }
    }

    pub fn subscribed(&self) -> Subscribed {
        Subscribed {
            misses: self.misses.subscribe(),
            version10: self.version10.subscribe(),
            properties: self.properties.subscribe(),
            port_counters: self.port_counters.subscribe(),
            ids: self.ids.subscribe(),
        }
    }
}

fn replace<T: PartialEq>(slot: &watch::Sender<T>, wanted: T) {
    slot.send_if_modified(|before| {
        let has_changed = *before != wanted;
        *before = wanted;
        has_changed
    });
}
