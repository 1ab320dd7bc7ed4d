//! Flow-ids: the numbers by which switches tell each other, over a PCIe link, what a packet is for.
//!
//! One id means the same on every link, so the hypervisor passes packets on without a table. Where a link carries ids as VLAN tags, no
//! more ids than these serve all ports: any port may be the destination of packets from the far end of any link.

use crate::server::quarantine::Quarantine;
use std::collections::BTreeMap;

/// A flow-id; 0 means none.
pub type FlowId = u32;

/// Highest DELIVER or INGRESS id that a VLAN tag carries.
pub const MAX_TAGGED: FlowId = 4080;
/// The multicast ids, one for each generation of the flood's members in rotation.
pub const FIRST_MULTICAST: FlowId = 4087;
/// Number of multicast ids.
pub const MULTICASTS: u64 = 8;
/// Ids that no port gets: between those of VLAN tags and the others, whatever a tag could mean.
const RESERVED: std::ops::Range<FlowId> = MAX_TAGGED + 1..4096;

/// The ids that ports may get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdSpace {
    /// Some link carries VLAN tags.
    Tagged,
    /// All links carry 32 bits.
    #[default]
    Wide,
}

impl IdSpace {
    /// Tells whether it has an id.
    pub fn contains(self, id: FlowId) -> bool {
        self == Self::Wide || id <= MAX_TAGGED
    }

    /// Returns the id at a place in the sequence of all ids, which begins with 0.
    fn id_at(self, place: usize) -> Option<FlowId> {
        let id = FlowId::try_from(place).ok()?.checked_add(1)?;
        match self {
            _ if id <= MAX_TAGGED => Some(id),
            Self::Tagged => None,
            Self::Wide => id.checked_add(RESERVED.end - RESERVED.start),
        }
    }

    /// Returns up to `count` ids: the lowest that are neither `used` nor quarantined, then those to reuse as a last resort.
    pub fn free(
        self,
        used: impl Iterator<Item = FlowId>,
        quarantine: &Quarantine,
        count: usize,
    ) -> Vec<FlowId> {
        let taken: Vec<FlowId> = used.chain(quarantine.ids()).collect();
        // The taken ids fill at most `taken.len()` of these places, so at least `count` are free.
        let mut places = vec![false; taken.len() + count];
        for id in taken {
            if let Some(place) = place_of(id).and_then(|place| places.get_mut(place)) {
                *place = true;
            }
        }
        let free = (0..places.len()).filter(move |place| !places[*place]);
        free.map_while(move |place| self.id_at(place))
            .chain(quarantine.last_resort())
            .take(count)
            .collect()
    }
}

/// Returns the place of an id in the sequence of all ids; `None` for ids that no port gets.
fn place_of(id: FlowId) -> Option<usize> {
    let place = match id {
        1..=MAX_TAGGED => id - 1,
        _ if id >= RESERVED.end => id - 1 - (RESERVED.end - RESERVED.start),
        _ => return None,
    };
    usize::try_from(place).ok()
}

/// The ids of a port: DELIVER and, if it has one, INGRESS.
pub type PortIds = (FlowId, Option<FlowId>);

/// Returns the ids of all these ports.
pub fn all_of(saved: &BTreeMap<u32, PortIds>) -> impl Iterator<Item = FlowId> + '_ {
    let both = |(deliver, ingress): &PortIds| [Some(*deliver), *ingress];
    saved.values().flat_map(both).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(space: IdSpace, used: impl Iterator<Item = FlowId>, count: usize) -> Vec<FlowId> {
        space.free(used, &Quarantine::default(), count)
    }

    #[test]
    fn the_lowest_free_ids_come_first() {
        assert_eq!(free(IdSpace::Tagged, [2, 4].into_iter(), 3), [1, 3, 5]);
        assert_eq!(free(IdSpace::Wide, [1, u32::MAX].into_iter(), 2), [2, 3]);
    }

    #[test]
    fn tags_end_where_wide_ids_go_on_above_all_vlan_ids() {
        let used = || 1..MAX_TAGGED;
        assert_eq!(free(IdSpace::Tagged, used(), 2), [MAX_TAGGED]);
        assert_eq!(free(IdSpace::Wide, used(), 3), [MAX_TAGGED, 4096, 4097]);
        let used = used().chain([MAX_TAGGED, 4096]);
        assert_eq!(free(IdSpace::Wide, used, 1), [4097]);
    }

    #[test]
    fn multicast_ids_are_never_given_to_ports() {
        let last = FIRST_MULTICAST + MULTICASTS as FlowId - 1;
        assert!(RESERVED.contains(&FIRST_MULTICAST) && RESERVED.contains(&last));
        let given = free(IdSpace::Wide, std::iter::empty(), 5000);
        assert_eq!(given.len(), 5000);
        assert!(given.iter().all(|id| !RESERVED.contains(id)));
    }
}
