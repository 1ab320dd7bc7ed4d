//! Ports that fast-failover groups watch.
//!
//! In `virt` a patch port stands for a virtual port, and Open vSwitch cannot take a patch port down (`netdev_vport_update_flags`,
//! lib/netdev-vport.c). So a bucket that watches port P watches a hidden group of P instead, which each switch has as long as P is live as
//! seen from there: a group with a bucket is live, one that does not exist is not (`group_is_alive`, ofproto/ofproto-dpif-xlate.c). The
//! controllers' groups keep their counters. A bucket has room for one group, so one that watches a port and a group watches a hidden group of
//! both.

use crate::api::SwitchIndex;
use crate::layout::messages::group_removal;
use crate::model::hidden::{needed_by, Hidden, HiddenGroups, Watch};
use crate::model::truth::Truth;
use crate::server::Server;
use crate::switch_set::SwitchSet;
use crate::switches::Switches;
use openflow13::{
    config, group_no, group_type, port_no, ActionList, Buckets, GroupDesc, GroupMod,
    GroupModCommand,
};
use std::collections::BTreeSet;

impl Switches {
    /// Provides the groups that these buckets watch, before a group with them is installed. `is_taken`: a controller names a number.
    pub fn watch_ports(
        &mut self,
        server: &mut Server,
        buckets: &Buckets,
        is_taken: impl Fn(u32) -> bool,
    ) {
        let dead = self.dead_links();
        for hidden in buckets.iter().flat_map(|bucket| needed_by(&bucket)) {
            if let Some(number) = server.hidden.provide(hidden, &is_taken) {
                server.unsettled = true;
                match hidden {
                    Hidden::Port(port) => self.tell_liveness(server, port, dead, Some(true)),
                    _ => self.send_watching(server, hidden, number),
                }
            }
        }
    }

    /// Gives all switches the group of a port, if it is live there, or of both a port and a group.
    pub fn send_watching(&mut self, server: &Server, hidden: Hidden, number: u32) {
        for switch in self.up().iter() {
            let live = &self.list[switch].live;
            if let Some(group) = watching_group(&server.hidden, hidden, number, live) {
                self.send_hidden(switch, group);
            }
        }
    }

    /// Returns the wanted hidden groups of `switch`, which has `found`, as additions; records them as installed.
    pub fn live_groups(
        &mut self,
        truth: &Truth,
        server: &mut Server,
        switch: SwitchIndex,
        found: &[GroupDesc],
    ) -> Vec<GroupMod> {
        server.provide_watched(truth);
        let dead = self.dead_links();
        let there: BTreeSet<u32> = found.iter().map(|group| group.group_id).collect();
        let buckets = found.iter().flat_map(|group| group.buckets.iter());
        let watching: BTreeSet<u32> = buckets.map(|bucket| bucket.watch_group).collect();
        let told = &self.list[switch].live;
        // For ports not seen since the start it keeps what it was told before, if something there watches them.
        let was_live = |port| {
            let group = server.hidden.number_of(Hidden::Port(port));
            let is_in = |numbers: &BTreeSet<u32>| group.is_some_and(|n| numbers.contains(&n));
            told.contains(&port) || is_in(&there) || !is_in(&watching)
        };
        let is_live = |port: &u32| {
            let known = self.is_live(server, *port, switch, dead);
            known.unwrap_or_else(|| was_live(*port))
        };
        let live = server.hidden.ports().filter(is_live).collect();
        self.list[switch].live = live;
        let live = &self.list[switch].live;
        let groups = server.hidden.iter();
        groups
            .filter_map(|(number, hidden)| watching_group(&server.hidden, hidden, number, live))
            .collect()
    }

    /// Tells the switches which watched ports have become live or dead.
    pub fn refresh_liveness(&mut self, server: &Server) {
        let dead = self.dead_links();
        for port in server.hidden.ports() {
            self.tell_liveness(server, port, dead, None);
        }
    }

    /// `unseen`: liveness of a port that was not seen since the start; `None`: unchanged.
    fn tell_liveness(&mut self, server: &Server, port: u32, dead: SwitchSet, unseen: Option<bool>) {
        let Some(number) = server.hidden.number_of(Hidden::Port(port)) else {
            return;
        };
        for switch in self.up().iter() {
            let Some(is_live) = self.is_live(server, port, switch, dead).or(unseen) else {
                continue;
            };
            let live = &mut self.list[switch].live;
            let message = match is_live {
                true if live.insert(port) => live_group(number),
                false if live.remove(&port) => group_removal(number),
                _ => continue,
            };
            self.send_hidden(switch, message);
        }
    }

    /// Tells whether packets to a port leave there, as far as `switch` could know. A merely disconnected switch changes nothing, because
    /// its data path may work. `dead`: see [`Self::dead_links`]. `None`: not seen since the start.
    fn is_live(
        &self,
        server: &Server,
        number: u32,
        switch: SwitchIndex,
        dead: SwitchSet,
    ) -> Option<bool> {
        let Some(port) = server.ports.get(number) else {
            return Some(false);
        };
        let home = port.delivery().switch;
        let cut_off = switch != home && (dead.contains(switch) || dead.contains(home));
        let is_down = cut_off || port.config & config::PORT_DOWN != 0;
        if is_down {
            Some(false)
        } else {
            port.has_carrier
        }
    }

    /// Returns the switches whose PCIe link is known to be dead.
    fn dead_links(&self) -> SwitchSet {
        let all = 0..self.list.len();
        all.filter(|switch| self.link_dead(*switch)).collect()
    }
}

/// Builds a hidden group that buckets watch; `None`: another one, or one of a port that is not `live`.
fn watching_group(
    groups: &HiddenGroups,
    hidden: Hidden,
    number: u32,
    live: &BTreeSet<u32>,
) -> Option<GroupMod> {
    match hidden {
        Hidden::Port(port) => live.contains(&port).then(|| live_group(number)),
        Hidden::Both(watch) => both_group(groups, watch, number),
        Hidden::Flood | Hidden::All => None,
    }
}

/// Builds a group that is live if the port or the group of a watch is.
fn both_group(groups: &HiddenGroups, (port, group): Watch, number: u32) -> Option<GroupMod> {
    let none = ActionList::new();
    let of = |watched: u32| (0, port_no::ANY, watched, &none);
    let port = groups.number_of(Hidden::Port(port))?;
    Some(GroupMod {
        command: GroupModCommand::AddOrModify,
        group_type: group_type::FAST_FAILOVER,
        group_id: number,
        buckets: Buckets::build([of(port), of(group)]),
        selection: None,
    })
}

fn live_group(number: u32) -> GroupMod {
    let bucket = (0, port_no::ANY, group_no::ANY, &ActionList::new());
    GroupMod {
        // A comparison may be based on the switch's state before this message.
        command: GroupModCommand::AddOrModify,
        group_type: group_type::ALL,
        group_id: number,
        buckets: Buckets::build([bucket]),
        selection: None,
    }
}
