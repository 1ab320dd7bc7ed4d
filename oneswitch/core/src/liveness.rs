//! Ports that fast-failover groups watch.
//!
//! In `virt` a patch port stands for a virtual port, and Open vSwitch cannot take a patch port down (`netdev_vport_update_flags`,
//! lib/netdev-vport.c). So a bucket that watches port P watches a hidden group of P instead, which each switch has as long as P is live as
//! seen from there: a group with a bucket is live, one that is not there is not (`group_is_alive`, ofproto/ofproto-dpif-xlate.c). What
//! the controllers' groups have counted stays where it is.

use crate::api::{Bridge, SwitchIndex};
use crate::flood::FLOOD_GROUP;
use crate::mutants::{mutant, Fault};
use crate::switch_set::SwitchSet;
use crate::sync::group_removal;
use crate::Core;
use openflow13::{
    config, group_no, group_type, port_no, ActionList, Bucket, Buckets, GroupDesc, GroupMod,
    GroupModCommand, Message,
};
use std::collections::BTreeSet;

/// The first of the hidden groups of ports in every `virt`; refused to controllers, as the flood group is.
pub const LIVE_GROUPS: u32 = 0xfffe_0000;
const PORT_BITS: u32 = 0xffff;
/// The hidden group that no switch has: ports begin at 1.
const NO_GROUP: u32 = LIVE_GROUPS;
/// Numbers above are reserved ports.
const LAST_PORT: u32 = 0xfeff;

/// Whether a group does not exist for controllers.
pub fn is_hidden(group: u32) -> bool {
    group == FLOOD_GROUP || group & !PORT_BITS == LIVE_GROUPS
}

/// The port and the group that a bucket watches.
pub type Watch = (u32, u32);

/// What a bucket watches on a switch, where that is not what the controller wrote: in place of what may be a virtual port its hidden group,
/// in place of a hidden group one that is not there, as it is not for controllers. A port beside a group of theirs stays as it is.
pub fn watched_instead((port, group): Watch) -> Option<Watch> {
    if watches_port((port, group)) {
        Some((port_no::ANY, LIVE_GROUPS | port))
    } else {
        is_hidden(group).then_some((port, NO_GROUP))
    }
}

/// What the controller wrote where a switch tells `told`; `wanted`: what it has written last, which may be later.
pub fn watched_for(told: Watch, wanted: Option<Watch>) -> Watch {
    let (_, group) = told;
    match wanted {
        Some(wanted) if watched_instead(wanted) == Some(told) => wanted,
        _ if group & !PORT_BITS == LIVE_GROUPS && group != NO_GROUP => {
            (group & PORT_BITS, group_no::ANY)
        }
        _ => told,
    }
}

/// Of a port and a group that is not there, the port counts (`bucket_is_alive`, ofproto/ofproto-dpif-xlate.c).
fn watches_port((port, group): Watch) -> bool {
    (1..=LAST_PORT).contains(&port) && (group == group_no::ANY || is_hidden(group))
}

fn watched_port(bucket: &Bucket<'_>) -> Option<u32> {
    watches_port((bucket.watch_port, bucket.watch_group)).then_some(bucket.watch_port)
}

impl Core {
    /// Before a group with these buckets is installed: what they watch is there.
    pub(crate) fn watch_ports(&mut self, buckets: &Buckets) {
        let dead = self.dead_links();
        for port in buckets.iter().filter_map(|bucket| watched_port(&bucket)) {
            if self.watched.insert(port) {
                self.tell_liveness(port, dead, Some(true));
            }
        }
    }

    /// What `switch`, which has `found`, is to have, as additions; noted as installed.
    pub(crate) fn live_groups(
        &mut self,
        switch: SwitchIndex,
        found: &[GroupDesc],
    ) -> Vec<GroupMod> {
        let groups = self.truth.groups.values();
        let watched = groups.flat_map(|g| g.buckets.iter().filter_map(|b| watched_port(&b)));
        self.watched.extend(watched);
        let dead = self.dead_links();
        let there: BTreeSet<u32> = found.iter().map(|group| group.group_id).collect();
        let buckets = found.iter().flat_map(|group| group.buckets.iter());
        let watching: BTreeSet<u32> = buckets.map(|bucket| bucket.watch_group).collect();
        let told = &self.switches[switch].live;
        // Of ports that were not seen since the start it knows what was told before, if something there watches them.
        let was_live = |port| {
            let group = LIVE_GROUPS | port;
            told.contains(&port) || there.contains(&group) || !watching.contains(&group)
        };
        let is_live = |port: &u32| {
            let known = self.is_live(*port, switch, dead);
            known.unwrap_or_else(|| was_live(*port))
        };
        let live = self.watched.iter().copied().filter(is_live).collect();
        self.switches[switch].live = live;
        let live = self.switches[switch].live.iter();
        live.map(|port| live_group(*port)).collect()
    }

    /// Tells the switches which of the ports that groups watch have become live or dead.
    pub(crate) fn refresh_liveness(&mut self) {
        let dead = self.dead_links();
        let watched: Vec<u32> = self.watched.iter().copied().collect();
        watched
            .into_iter()
            .for_each(|port| self.tell_liveness(port, dead, None));
    }

    /// `unseen`: of a port that was not seen since the start; `None`: it stays as it is.
    fn tell_liveness(&mut self, port: u32, dead: SwitchSet, unseen: Option<bool>) {
        for switch in self.up().iter() {
            let Some(is_live) = self.is_live(port, switch, dead).or(unseen) else {
                continue;
            };
            let live = &mut self.switches[switch].live;
            let message = match is_live {
                true if live.insert(port) => live_group(port),
                false if live.remove(&port) => group_removal(LIVE_GROUPS | port),
                _ => continue,
            };
            self.send_hidden(switch, message);
        }
    }

    /// Changes a hidden group of `switch`.
    pub(crate) fn send_hidden(&mut self, switch: SwitchIndex, message: GroupMod) {
        self.switches[switch].own_changes += 1;
        self.send_to(switch, Bridge::Virt, &Message::GroupMod(message));
    }

    /// Whether packets that leave at a port come out there, as far as `switch` could know. A switch that is merely not connected
    /// changes nothing: its data path may well work. `dead`: see [`Self::dead_links`]. `None`: it was not seen since the start.
    fn is_live(&self, number: u32, switch: SwitchIndex, dead: SwitchSet) -> Option<bool> {
        let Some(port) = self.ports.get(number) else {
            return Some(false);
        };
        if mutant(Fault::DeadPortWatched) {
            return Some(true);
        }
        let home = port.delivery().switch;
        let cut_off = switch != home && (dead.contains(switch) || dead.contains(home));
        let is_down = cut_off || port.config & config::PORT_DOWN != 0;
        if is_down {
            Some(false)
        } else {
            port.has_carrier
        }
    }

    /// Switches whose PCIe link is known to be dead.
    fn dead_links(&self) -> SwitchSet {
        let all = 0..self.switches.len();
        all.filter(|switch| self.link_dead(*switch)).collect()
    }
}

fn live_group(port: u32) -> GroupMod {
    let bucket = (0, port_no::ANY, group_no::ANY, &ActionList::new());
    GroupMod {
        // A comparison may be based on what the switch had before it got this one.
        command: GroupModCommand::AddOrModify,
        group_type: group_type::ALL,
        group_id: LIVE_GROUPS | port,
        buckets: Buckets::build([bucket]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: u32 = group_no::ANY;

    #[test]
    fn hidden_groups_are_the_floods_and_those_of_ports() {
        for group in [
            FLOOD_GROUP,
            LIVE_GROUPS,
            LIVE_GROUPS + 1,
            LIVE_GROUPS + PORT_BITS,
        ] {
            assert!(is_hidden(group), "{group:#x}");
        }
        for group in [
            0,
            1,
            PORT_BITS,
            LIVE_GROUPS - 1,
            LIVE_GROUPS + PORT_BITS + 1,
            NONE,
        ] {
            assert!(group == FLOOD_GROUP || !is_hidden(group), "{group:#x}");
        }
    }

    #[test]
    fn what_may_be_a_virtual_port_is_watched_by_its_group() {
        let group_of = |port| Some((port_no::ANY, LIVE_GROUPS | port));
        for (watch, instead) in [
            ((1, NONE), group_of(1)),
            ((0xfeff, NONE), group_of(0xfeff)),
            ((0xff00, NONE), None),
            ((0, NONE), None),
            ((port_no::ANY, NONE), None),
            ((1, 7), None),
            ((port_no::ANY, 7), None),
            // Groups that do not exist for controllers.
            ((5, LIVE_GROUPS | 9), group_of(5)),
            (
                (port_no::ANY, LIVE_GROUPS | 9),
                Some((port_no::ANY, NO_GROUP)),
            ),
            ((0, FLOOD_GROUP), Some((0, NO_GROUP))),
        ] {
            assert_eq!(watched_instead(watch), instead, "{watch:x?}");
            let told = instead.unwrap_or(watch);
            assert_eq!(watched_for(told, Some(watch)), watch, "{watch:x?}");
        }
    }

    #[test]
    fn what_a_switch_tells_is_read_back_without_what_was_written_last() {
        for wanted in [None, Some((3, 4))] {
            let read = |told| watched_for(told, wanted);
            assert_eq!(read((port_no::ANY, LIVE_GROUPS | 9)), (9, NONE));
            assert_eq!(read((port_no::ANY, NO_GROUP)), (port_no::ANY, NO_GROUP));
            assert_eq!(read((port_no::ANY, 9)), (port_no::ANY, 9));
            assert_eq!(read((0xff00, NONE)), (0xff00, NONE));
        }
    }
}
