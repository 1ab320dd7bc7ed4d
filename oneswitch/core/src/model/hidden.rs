//! Groups that exist on the switches only: the flood group (flood.rs), and one per watched port (liveness.rs).

use openflow13::{group_no, port_no, Bucket};

/// Group id of the hidden flood group in every `virt`; refused to controllers.
pub const FLOOD_GROUP: u32 = 0xffff_fe00;
/// The first of the hidden groups of ports in every `virt`; refused to controllers, as the flood group is.
pub const LIVE_GROUPS: u32 = 0xfffe_0000;
const PORT_BITS: u32 = 0xffff;
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

/// Returns a bucket's watch on a switch, if it differs from the controller's: the hidden group of a possible virtual port, or, instead of a
/// hidden group, one that does not exist, as it does not for controllers. A port beside a controller's group stays.
pub fn watched_instead((port, group): Watch) -> Option<Watch> {
    if watches_port((port, group)) {
        Some((port_no::ANY, LIVE_GROUPS | port))
    } else {
        is_hidden(group).then_some((port, NO_GROUP))
    }
}

/// Returns the controller's watch for `told`, reported by a switch; `wanted`: its last written value, which may be newer.
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

/// Tells whether the port counts, which it does beside a group that does not exist (`bucket_is_alive`, ofproto/ofproto-dpif-xlate.c).
fn watches_port((port, group): Watch) -> bool {
    (1..=LAST_PORT).contains(&port) && (group == group_no::ANY || is_hidden(group))
}

pub fn watched_port(bucket: &Bucket<'_>) -> Option<u32> {
    watches_port((bucket.watch_port, bucket.watch_group)).then_some(bucket.watch_port)
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
