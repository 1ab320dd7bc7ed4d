//! Groups that exist on the switches only: those for FLOOD and ALL (flood.rs), and one per watched port, and one per port and group that a bucket
//! watches together (liveness.rs).

use openflow13::{group_no, port_no, Bucket};
use std::collections::BTreeMap;

/// Group id of the hidden group for FLOOD in every `virt`; refused to controllers.
pub const FLOOD_GROUP: u32 = 0xffff_fe00;
/// The first of the hidden groups of ports in every `virt`; refused to controllers, as the flood group is.
pub const LIVE_GROUPS: u32 = 0xfffe_0000;
const PORT_BITS: u32 = 0xffff;
/// Group id of the hidden group for ALL in every `virt`.
pub const ALL_GROUP: u32 = LIVE_GROUPS | PORT_BITS;
/// The hidden group that no switch has: ports begin at 1.
const NO_GROUP: u32 = LIVE_GROUPS;
/// Numbers above are reserved ports.
const LAST_PORT: u32 = 0xfeff;

/// Tells whether a group is hidden from controllers.
pub fn is_hidden(group: u32) -> bool {
    group == FLOOD_GROUP || group & !PORT_BITS == LIVE_GROUPS
}

/// The port and the group that a bucket watches.
pub type Watch = (u32, u32);

/// Hidden groups of ports and groups that buckets watch together; their numbers are those of no port.
#[derive(Debug, Default)]
pub struct Pairs(BTreeMap<Watch, u32>);

impl Pairs {
    const FIRST: u32 = LIVE_GROUPS | (LAST_PORT + 1);
    const COUNT: u32 = PORT_BITS - LAST_PORT - 1;

    /// Gives a watch a group, the same after a restart unless others have it. Returns its number if it is new; `None` also if there are too
    /// many, so that the port counts as live as long as it is mapped.
    pub fn assign(&mut self, watch: Watch) -> Option<u32> {
        if !watches_both(watch) || self.0.contains_key(&watch) {
            return None;
        }
        let (port, group) = watch;
        let start = port.wrapping_mul(31).wrapping_add(group) % Self::COUNT;
        let mut numbers = (0..Self::COUNT).map(|step| Self::FIRST + (start + step) % Self::COUNT);
        let free = numbers.find(|number| self.watch_of(*number).is_none())?;
        self.0.insert(watch, free);
        Some(free)
    }

    fn watch_of(&self, number: u32) -> Option<Watch> {
        let mut all = self.iter();
        all.find(|(_, given)| *given == number)
            .map(|(watch, _)| watch)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Watch, u32)> + '_ {
        self.0.iter().map(|(watch, number)| (*watch, *number))
    }
}

/// Returns a bucket's watch on a switch, if it differs from the controller's: the hidden group of a possible virtual port, or of it and a
/// group; or, instead of a hidden group, one that does not exist, as it does not for controllers.
pub fn watched_instead((port, group): Watch, pairs: &Pairs) -> Option<Watch> {
    if watches_both((port, group)) {
        let number = pairs.0.get(&(port, group))?;
        Some((port_no::ANY, *number))
    } else if watches_port((port, group)) {
        Some((port_no::ANY, LIVE_GROUPS | port))
    } else {
        is_hidden(group).then_some((port, NO_GROUP))
    }
}

/// Tells whether a bucket is live if a possible virtual port is, or a group of controllers.
pub fn watches_both((port, group): Watch) -> bool {
    (1..=LAST_PORT).contains(&port) && group != group_no::ANY && !is_hidden(group)
}

/// Tells whether only the port counts, which it does beside a group that does not exist (`bucket_is_alive`, ofproto/ofproto-dpif-xlate.c).
fn watches_port((port, group): Watch) -> bool {
    (1..=LAST_PORT).contains(&port) && (group == group_no::ANY || is_hidden(group))
}

/// Tells whether a bucket's watch may differ on a switch.
pub fn is_translated(watch: Watch) -> bool {
    watches_both(watch) || watched_instead(watch, &Pairs::default()).is_some()
}

pub fn watched_port(bucket: &Bucket<'_>) -> Option<u32> {
    let watch = (bucket.watch_port, bucket.watch_group);
    (watches_port(watch) || watches_both(watch)).then_some(bucket.watch_port)
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
            let none = Pairs::default();
            assert_eq!(watched_instead(watch, &none), instead, "{watch:x?}");
        }
    }

    #[test]
    fn a_port_and_a_group_are_watched_by_a_group_of_both() {
        let mut pairs = Pairs::default();
        let all: Vec<Watch> = (1..=300).map(|port| (port, 7)).collect();
        let given: Vec<u32> = all.iter().filter_map(|w| pairs.assign(*w)).collect();
        let mut different = given.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!((given.len(), different.len()), (255, 255));
        assert!(!given.contains(&ALL_GROUP));
        assert!(given.iter().all(|number| is_hidden(*number)));
        assert_eq!(pairs.assign((1, 7)), None, "it has one");
        assert_eq!(pairs.assign((1, NONE)), None, "there is no group");
        let told = watched_instead((1, 7), &pairs).unwrap();
        assert_eq!(told, (port_no::ANY, given[0]));
    }
}
