//! The search for a free place by moving entries, where each column has a hash of its own.

use nf_tables::Key;

use crate::table::{Places, Shape, Slot};

use super::local::Local;

/// The most slots that a search examines. At a load of 0.31, the densest that the paper uses, a search ends after a few.
pub(super) const EXAMINED: usize = 64;

/// Returns the slots of the shortest way: the empty one first, then those whose entries move one step towards it, at last one of `places`.
pub(super) fn search<K: Key>(shape: Shape, local: &Local<K>, places: &Places) -> Option<Vec<Slot>> {
    // Breadth first: each examined slot, and the one whose entry would move to it.
    let mut examined: Vec<(Slot, Option<usize>)> = Vec::with_capacity(EXAMINED);
    examined.extend(places.slots().iter().map(|&slot| (slot, None)));
    let mut next = 0;
    while next < examined.len() {
        let (slot, _) = examined[next];
        let entry = local.read(slot)?;
        for &other in shape.places(&entry.key).slots() {
            if examined.iter().any(|(seen, _)| *seen == other) {
                continue;
            }
            if local.is_empty(other) {
                return Some(way(&examined, other, next));
            }
            if examined.len() < EXAMINED {
                examined.push((other, Some(next)));
            }
        }
        next += 1;
    }
    None
}

fn way(examined: &[(Slot, Option<usize>)], empty: Slot, last: usize) -> Vec<Slot> {
    let mut way = vec![empty];
    let mut at = Some(last);
    while let Some(index) = at {
        let (slot, parent) = examined[index];
        way.push(slot);
        at = parent;
    }
    way
}
