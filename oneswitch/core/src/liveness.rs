//! Ports that fast-failover groups watch.
//!
//! In `virt` a patch port stands for a virtual port, and Open vSwitch cannot take a patch port down (`netdev_vport_update_flags`,
//! lib/netdev-vport.c). So a bucket that watches port P watches a hidden group of P instead, which each switch has as long as P is live as
//! seen from there: a group with a bucket is live, one that is not there is not (`group_is_alive`, ofproto/ofproto-dpif-xlate.c). What
//! the controllers' groups have counted stays where it is.

use crate::api::{Bridge, SwitchIndex};
use crate::flood::FLOOD_GROUP;
use crate::mutants::{mutant, Fault};
use crate::ports::VirtualPort;
use crate::sync::group_removal;
use crate::Core;
use openflow13::{
    config, group_no, group_type, port_no, state, ActionList, Bucket, Buckets, GroupMod,
    GroupModCommand, Message,
};

/// The first of the hidden groups of ports in every `virt`; refused to controllers, as the flood group is.
const LIVE_GROUPS: u32 = 0xfffe_0000;
const PORT_BITS: u32 = 0xffff;
/// Numbers above are reserved ports.
const LAST_PORT: u32 = 0xfeff;

/// Whether a group does not exist for controllers.
pub fn is_hidden(group: u32) -> bool {
    group == FLOOD_GROUP || group & !PORT_BITS == LIVE_GROUPS
}

/// The hidden group to watch instead of `port`, where that may be a virtual port. A bucket that watches a group as well stays as it is.
pub fn watched_instead(watch_port: u32, watch_group: u32) -> Option<u32> {
    let is_port = (1..=LAST_PORT).contains(&watch_port);
    (is_port && watch_group == group_no::ANY).then_some(LIVE_GROUPS | watch_port)
}

fn watched_port(bucket: &Bucket<'_>) -> Option<u32> {
    watched_instead(bucket.watch_port, bucket.watch_group).map(|_| bucket.watch_port)
}

impl Core {
    /// Before a group with these buckets is installed: what they watch is there.
    pub(crate) fn watch_ports(&mut self, buckets: &Buckets) {
        for port in buckets.iter().filter_map(|bucket| watched_port(&bucket)) {
            if self.watched.insert(port) {
                self.refresh_liveness(port);
            }
        }
    }

    /// What `switch` is to have, as additions; noted as installed.
    pub(crate) fn live_groups(&mut self, switch: SwitchIndex) -> Vec<GroupMod> {
        let groups: Vec<_> = self.truth.groups.values().cloned().collect();
        let watched = groups
            .iter()
            .flat_map(|group| group.buckets.iter().filter_map(|b| watched_port(&b)));
        self.watched.extend(watched);
        let live = self.watched.iter().copied();
        self.switches[switch].live = live.filter(|port| self.is_live(*port, switch)).collect();
        self.switches[switch]
            .live
            .iter()
            .map(|p| live_group(*p))
            .collect()
    }

    /// Tells every switch whether a port that some group watches is live.
    pub(crate) fn refresh_liveness(&mut self, port: u32) {
        if !self.watched.contains(&port) {
            return;
        }
        for switch in self.up().iter() {
            let live = self.is_live(port, switch);
            let changed = match live {
                true => self.switches[switch].live.insert(port),
                false => self.switches[switch].live.remove(&port),
            };
            if changed {
                let message = match live {
                    true => live_group(port),
                    false => group_removal(LIVE_GROUPS | port),
                };
                self.send_to(switch, Bridge::Virt, &Message::GroupMod(message));
            }
        }
    }

    /// Whether packets that leave at a port come out there, as far as `switch` could know. A switch that is merely not connected
    /// makes no port dead: its data path may well work.
    fn is_live(&self, number: u32, switch: SwitchIndex) -> bool {
        let Some(port) = self.ports.get(number) else {
            return false;
        };
        let home = port.delivery().switch;
        let cut_off = switch != home && (self.link_dead(switch) || self.link_dead(home));
        !cut_off && self.has_carrier(port) || mutant(Fault::DeadPortWatched)
    }

    fn has_carrier(&self, port: &VirtualPort) -> bool {
        let home = port.delivery();
        let edge = &self.switches[home.switch].edge;
        let up = match edge.port_named(&home.interface) {
            Some(interface) => interface.state & state::LINK_DOWN == 0,
            None => !edge.is_up(),
        };
        up && port.config & config::PORT_DOWN == 0
    }
}

fn live_group(port: u32) -> GroupMod {
    let bucket = (0, port_no::ANY, group_no::ANY, &ActionList::new());
    GroupMod {
        command: GroupModCommand::Add,
        group_type: group_type::ALL,
        group_id: LIVE_GROUPS | port,
        buckets: Buckets::build([bucket]),
    }
}
