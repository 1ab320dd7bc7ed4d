//! A set of switches as one machine word: a server has a handful of sNICs, never more than 63.

use crate::api::SwitchIndex;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchSet(u64);

impl SwitchSet {
    pub const EMPTY: Self = Self(0);
    pub const ALL: Self = Self(u64::MAX);
    /// Maximum number of switches of a server.
    pub const CAPACITY: usize = 64;

    pub fn of(switch: SwitchIndex) -> Self {
        debug_assert!(switch < Self::CAPACITY);
        Self(1 << switch)
    }

    pub fn insert(&mut self, switch: SwitchIndex) {
        self.0 |= Self::of(switch).0;
    }

    pub fn remove(&mut self, switch: SwitchIndex) {
        self.0 &= !Self::of(switch).0;
    }

    pub fn contains(self, switch: SwitchIndex) -> bool {
        self.0 & Self::of(switch).0 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the only switch of a set of one.
    pub fn only(self) -> Option<SwitchIndex> {
        self.iter().next().filter(|_| self.len() == 1)
    }

    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub fn iter(self) -> impl Iterator<Item = SwitchIndex> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let lowest = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            Some(lowest)
        })
    }
}

impl FromIterator<SwitchIndex> for SwitchSet {
    fn from_iter<I: IntoIterator<Item = SwitchIndex>>(switches: I) -> Self {
        let mut set = Self::EMPTY;
        switches.into_iter().for_each(|s| set.insert(s));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterates_in_order_and_subtracts() {
        let set: SwitchSet = [5, 0, 63].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 5, 63]);
        assert_eq!(set.minus(SwitchSet::of(5)).len(), 2);
        assert!(set.intersection(SwitchSet::of(1)).is_empty());
    }
}
