//! Ports that fast-failover groups watch.
//!
//! In `virt` a patch port stands for a virtual port, and Open vSwitch cannot take a patch port down (`netdev_vport_update_flags`,
//! lib/netdev-vport.c). So a bucket that watches port P watches a hidden group of P instead, which each switch has as long as P is live as
//! seen from there: a group with a bucket is live, one that does not exist is not (`group_is_alive`, ofproto/ofproto-dpif-xlate.c). The
//! controllers' groups keep their counters. A bucket has room for one group, so one that watches a port and a group watches a hidden group of
//! both.

use crate::api::SwitchIndex;
use crate::layout::messages::group_removal;
use crate::model::hidden::{watched_port, Watch, LIVE_GROUPS};
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
    /// Provides the groups that these buckets watch, before a group with them is installed.
    pub fn watch_ports(&mut self, server: &mut Server, buckets: &Buckets) {
        let dead = self.dead_links();
        for port in buckets.iter().filter_map(|bucket| watched_port(&bucket)) {
            if server.watched.insert(port) {
                self.tell_liveness(server, port, dead, Some(true));
            }
        }
        for watch in buckets.iter().map(|b| (b.watch_port, b.watch_group)) {
            if let Some(number) = server.pairs.assign(watch) {
                for switch in self.up().iter() {
                    self.send_hidden(switch, pair_group(watch, number));
                }
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
        let groups = truth.groups.values();
        let watched = groups.flat_map(|g| g.buckets.iter().filter_map(|b| watched_port(&b)));
        server.watched.extend(watched);
        for bucket in truth.groups.values().flat_map(|g| g.buckets.iter()) {
            server.pairs.assign((bucket.watch_port, bucket.watch_group));
        }
        let dead = self.dead_links();
        let there: BTreeSet<u32> = found.iter().map(|group| group.group_id).collect();
        let buckets = found.iter().flat_map(|group| group.buckets.iter());
        let watching: BTreeSet<u32> = buckets.map(|bucket| bucket.watch_group).collect();
        let told = &self.list[switch].live;
        // For ports not seen since the start it keeps what it was told before, if something there watches them.
        let was_live = |port| {
            let group = LIVE_GROUPS | port;
            told.contains(&port) || there.contains(&group) || !watching.contains(&group)
        };
        let is_live = |port: &u32| {
            let known = self.is_live(server, *port, switch, dead);
            known.unwrap_or_else(|| was_live(*port))
        };
        let live = server.watched.iter().copied().filter(is_live).collect();
        self.list[switch].live = live;
        let live = self.list[switch].live.iter();
        let pairs = server.pairs.iter().map(|(watch, n)| pair_group(watch, n));
        live.map(|port| live_group(*port)).chain(pairs).collect()
    }

    /// Tells the switches which watched ports have become live or dead.
    pub fn refresh_liveness(&mut self, server: &Server) {
        let dead = self.dead_links();
        for port in &server.watched {
            self.tell_liveness(server, *port, dead, None);
        }
    }

    /// `unseen`: liveness of a port that was not seen since the start; `None`: unchanged.
    fn tell_liveness(&mut self, server: &Server, port: u32, dead: SwitchSet, unseen: Option<bool>) {
        for switch in self.up().iter() {
            let Some(is_live) = self.is_live(server, port, switch, dead).or(unseen) else {
                continue;
            };
            let live = &mut self.list[switch].live;
            let message = match is_live {
                true if live.insert(port) => live_group(port),
                false if live.remove(&port) => group_removal(LIVE_GROUPS | port),
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

/// Builds a group that is live if the port or the group of a watch is.
fn pair_group((port, group): Watch, number: u32) -> GroupMod {
    let none = ActionList::new();
    let of = |watched: u32| (0, port_no::ANY, watched, &none);
    GroupMod {
        command: GroupModCommand::AddOrModify,
        group_type: group_type::FAST_FAILOVER,
        group_id: number,
        buckets: Buckets::build([of(LIVE_GROUPS | port), of(group)]),
        selection: None,
    }
}

fn live_group(port: u32) -> GroupMod {
    let bucket = (0, port_no::ANY, group_no::ANY, &ActionList::new());
    GroupMod {
        // A comparison may be based on the switch's state before this message.
        command: GroupModCommand::AddOrModify,
        group_type: group_type::ALL,
        group_id: LIVE_GROUPS | port,
        buckets: Buckets::build([bucket]),
        selection: None,
    }
}
