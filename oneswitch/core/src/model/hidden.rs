//! Groups that exist on the switches only: those for FLOOD and ALL (flood.rs), and one per watched port, and one per port and group that a bucket
//! watches together (liveness.rs).
//!
//! Open vSwitch takes no numbers that controllers cannot use, too. So each hidden group has a usual number, and steps aside when a controller
//! names that one (core/aside.rs).

use openflow13::{group_no, port_no, Bucket};
use std::collections::BTreeMap;

/// The usual number of the hidden group for FLOOD in every `virt`.
const FLOOD_GROUP: u32 = 0xffff_fe00;
/// The first of the usual numbers of the hidden groups of ports in every `virt`; other hidden groups step aside to numbers below.
const LIVE_GROUPS: u32 = 0xfffe_0000;
const PORT_BITS: u32 = 0xffff;
/// The usual number of the hidden group for ALL in every `virt`.
const ALL_GROUP: u32 = LIVE_GROUPS | PORT_BITS;
/// Numbers above are reserved ports.
const LAST_PORT: u32 = 0xfeff;
/// The usual numbers of groups for a port and a group; they are those of no port.
const FIRST_OF_BOTH: u32 = LIVE_GROUPS | (LAST_PORT + 1);
const COUNT_OF_BOTH: u32 = PORT_BITS - LAST_PORT - 1;

/// The port and the group that a bucket watches.
pub type Watch = (u32, u32);

/// What a hidden group is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hidden {
    Flood,
    All,
    /// It exists as long as this virtual port is live.
    Port(u32),
    /// It is live if a port or a group is that buckets watch together.
    Both(Watch),
}

impl Hidden {
    /// Returns what a bucket with this watch watches on a switch; `None`: the same.
    pub fn instead_of((port, group): Watch) -> Option<Self> {
        let may_be_virtual = (1..=LAST_PORT).contains(&port);
        may_be_virtual.then_some(match group {
            group_no::ANY => Self::Port(port),
            _ => Self::Both((port, group)),
        })
    }

    /// Iterates over its numbers, from the most to the least usual one: the same after a restart, unless others have them.
    fn numbers(self) -> impl Iterator<Item = u32> {
        let (first, start, count) = match self {
            Self::Flood => (FLOOD_GROUP, 0, 1),
            Self::All => (ALL_GROUP, 0, 1),
            Self::Port(port) => (LIVE_GROUPS | port, 0, 1),
            Self::Both((port, group)) => {
                let start = port.wrapping_mul(31).wrapping_add(group) % COUNT_OF_BOTH;
                (FIRST_OF_BOTH, start, COUNT_OF_BOTH)
            }
        };
        let usual = (0..count).map(move |step| first + (start + step) % count);
        usual.chain((0..LIVE_GROUPS).rev())
    }

    fn watch(self) -> Option<Watch> {
        match self {
            Self::Flood | Self::All => None,
            Self::Port(port) => Some((port, group_no::ANY)),
            Self::Both(watch) => Some(watch),
        }
    }
}

/// The hidden groups in use and their numbers.
#[derive(Clone, Debug)]
pub struct HiddenGroups {
    numbers: BTreeMap<Hidden, u32>,
    /// Also by the former number of a group that steps aside, which switches still have.
    by_number: BTreeMap<u32, Hidden>,
}

impl Default for HiddenGroups {
    fn default() -> Self {
        let floods = [(Hidden::Flood, FLOOD_GROUP), (Hidden::All, ALL_GROUP)];
        Self {
            numbers: floods.into(),
            by_number: floods.map(|(hidden, number)| (number, hidden)).into(),
        }
    }
}

impl HiddenGroups {
    pub fn flood(&self) -> u32 {
        self.number_of(Hidden::Flood).unwrap_or(FLOOD_GROUP)
    }

    pub fn all(&self) -> u32 {
        self.number_of(Hidden::All).unwrap_or(ALL_GROUP)
    }

    pub fn number_of(&self, hidden: Hidden) -> Option<u32> {
        self.numbers.get(&hidden).copied()
    }

    /// Returns the hidden group with a number on the switches.
    pub fn at(&self, number: u32) -> Option<Hidden> {
        self.by_number.get(&number).copied()
    }

    /// Tells whether a group on the switches is hidden from controllers.
    pub fn contain(&self, number: u32) -> bool {
        self.by_number.contains_key(&number)
    }

    /// Iterates over what the switches have, or may have, by its number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Hidden)> + '_ {
        self.by_number
            .iter()
            .map(|(number, hidden)| (*number, *hidden))
    }

    /// Iterates over the ports that buckets watch, or have watched.
    pub fn ports(&self) -> impl Iterator<Item = u32> + '_ {
        self.numbers.keys().filter_map(|hidden| match hidden {
            Hidden::Port(port) => Some(*port),
            _ => None,
        })
    }

    /// Returns the number of a hidden group that was not in use. `None` also if too many ports are watched together with groups, so that these
    /// count as live as long as they are mapped. `is_taken`: a controller names a number.
    pub fn provide(&mut self, hidden: Hidden, is_taken: impl Fn(u32) -> bool) -> Option<u32> {
        let is_both = |hidden: &&Hidden| matches!(hidden, Hidden::Both(_));
        let is_full = || self.numbers.keys().filter(is_both).count() >= COUNT_OF_BOTH as usize;
        if self.numbers.contains_key(&hidden) || is_both(&&hidden) && is_full() {
            return None;
        }
        self.put(hidden, is_taken)
    }

    /// Gives the hidden group with a number another one, which it returns. The switches still have the former one, until
    /// [`Self::has_stepped_aside`].
    pub fn step_aside(&mut self, number: u32, is_taken: impl Fn(u32) -> bool) -> Option<u32> {
        let hidden = self.at(number)?;
        let is_present = self.number_of(hidden) == Some(number);
        is_present.then(|| self.put(hidden, is_taken)).flatten()
    }

    pub fn has_stepped_aside(&mut self, former: u32) {
        self.by_number.remove(&former);
    }

    fn put(&mut self, hidden: Hidden, is_taken: impl Fn(u32) -> bool) -> Option<u32> {
        let is_free = |number: &u32| !self.contain(*number) && !is_taken(*number);
        let number = hidden.numbers().find(is_free)?;
        self.numbers.insert(hidden, number);
        self.by_number.insert(number, hidden);
        Some(number)
    }

    /// Returns a bucket's watch on a switch; `None`: the controller's.
    pub fn watched_instead(&self, watch: Watch) -> Option<Watch> {
        let number = self.number_of(Hidden::instead_of(watch)?)?;
        Some((port_no::ANY, number))
    }

    /// Encodes for the journal.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let usual = Self::default();
        for (hidden, number) in &self.numbers {
            let (port, group) = hidden.watch().unwrap_or_default();
            let kind = match hidden {
                _ if usual.numbers.get(hidden) == Some(number) => continue,
                Hidden::Flood => 0,
                Hidden::All => 1,
                Hidden::Port(_) => 2,
                Hidden::Both(_) => 3,
            };
            out.extend([kind, port, group, *number].map(u32::to_be_bytes).concat());
        }
        out
    }

    /// Decodes; `None`: not the format of [`Self::encode`].
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut numbers = Self::default().numbers;
        let entries = bytes.chunks_exact(16);
        let is_cut = !entries.remainder().is_empty();
        for entry in entries {
            let word =
                |at: usize| Some(u32::from_be_bytes(entry.get(at..at + 4)?.try_into().ok()?));
            let hidden = match word(0)? {
                0 => Hidden::Flood,
                1 => Hidden::All,
                2 => Hidden::Port(word(4)?),
                3 => Hidden::Both((word(4)?, word(8)?)),
                _ => return None,
            };
            numbers.insert(hidden, word(12)?);
        }
        let by_number = numbers.iter().map(|(hidden, number)| (*number, *hidden));
        let by_number: BTreeMap<u32, Hidden> = by_number.collect();
        let is_whole = !is_cut && by_number.len() == numbers.len();
        is_whole.then_some(Self { numbers, by_number })
    }

    /// Forgets the ports that no bucket watches any more.
    pub fn retain_watched(&mut self, is_watched: impl Fn(Hidden) -> bool) {
        let is_used = |hidden: Hidden| hidden.watch().is_none() || is_watched(hidden);
        self.numbers.retain(|hidden, _| is_used(*hidden));
        self.by_number.retain(|_, hidden| is_used(*hidden));
    }
}

/// Returns the hidden groups that a bucket needs.
pub fn needed_by(bucket: &Bucket<'_>) -> impl Iterator<Item = Hidden> {
    let watched = Hidden::instead_of((bucket.watch_port, bucket.watch_group));
    let port = watched.map(|_| Hidden::Port(bucket.watch_port));
    port.into_iter().chain(watched.filter(|_| watched != port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: u32 = group_no::ANY;

    fn free(_: u32) -> bool {
        false
    }

    #[test]
    fn what_may_be_a_virtual_port_is_watched_by_its_group() {
        for (watch, hidden) in [
            ((1, NONE), Some(Hidden::Port(1))),
            ((0xfeff, NONE), Some(Hidden::Port(0xfeff))),
            ((0xff00, NONE), None),
            ((0, NONE), None),
            ((port_no::ANY, NONE), None),
            ((1, 7), Some(Hidden::Both((1, 7)))),
            ((port_no::ANY, 7), None),
        ] {
            assert_eq!(Hidden::instead_of(watch), hidden, "{watch:x?}");
            let mut groups = HiddenGroups::default();
            let number = hidden.and_then(|hidden| groups.provide(hidden, free));
            let instead = groups.watched_instead(watch);
            assert_eq!(instead, number.map(|number| (port_no::ANY, number)));
        }
    }

    #[test]
    fn hidden_groups_have_their_usual_numbers() {
        let mut groups = HiddenGroups::default();
        assert_eq!((groups.flood(), groups.all()), (0xffff_fe00, 0xfffe_ffff));
        assert_eq!(groups.provide(Hidden::Port(9), free), Some(0xfffe_0009));
        assert_eq!(groups.provide(Hidden::Port(9), free), None, "it has one");
        assert!(groups.contain(0xfffe_0009) && !groups.contain(0xfffe_0008));
        assert_eq!(groups.ports().collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn the_numbers_of_controllers_are_left_to_them() {
        let mut groups = HiddenGroups::default();
        let taken = |number| (0xfffd_fff0..=0xfffe_0009).contains(&number);
        assert_eq!(groups.provide(Hidden::Port(9), taken), Some(0xfffd_ffef));
        assert_eq!(groups.provide(Hidden::Port(8), taken), Some(0xfffd_ffee));
        assert!(!groups.contain(0xfffe_0009));
    }

    #[test]
    fn a_group_that_steps_aside_stays_hidden_until_it_has() {
        let mut groups = HiddenGroups::default();
        let (flood, taken) = (groups.flood(), |number| number == FLOOD_GROUP);
        let number = groups.step_aside(flood, taken).unwrap();
        assert_eq!((groups.flood(), number), (LIVE_GROUPS - 1, groups.flood()));
        assert_eq!(groups.at(flood), Some(Hidden::Flood));
        assert_eq!(groups.step_aside(flood, taken), None, "it is on its way");
        groups.has_stepped_aside(flood);
        assert_eq!(
            (groups.at(flood), groups.at(number)),
            (None, Some(Hidden::Flood))
        );
        assert_eq!(groups.step_aside(7, taken), None, "it is none");
    }

    #[test]
    fn a_port_and_a_group_are_watched_by_a_group_of_both() {
        let mut groups = HiddenGroups::default();
        let all = (1..=300).map(|port| Hidden::Both((port, 7)));
        let given: Vec<u32> = all.filter_map(|both| groups.provide(both, free)).collect();
        let mut different = given.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!((given.len(), different.len()), (255, 255));
        assert!(given
            .iter()
            .all(|number| (FIRST_OF_BOTH..ALL_GROUP).contains(number)));
        assert_eq!(
            groups.watched_instead((1, 7)),
            Some((port_no::ANY, given[0]))
        );
        let none = groups.watched_instead((300, 7));
        assert_eq!(none, None, "there are too many");
    }

    #[test]
    fn the_journal_restores_the_numbers_in_use() {
        let mut groups = HiddenGroups::default();
        assert_eq!(groups.encode(), []);
        for hidden in [Hidden::Port(3), Hidden::Both((3, 4))] {
            groups.provide(hidden, free).unwrap();
        }
        groups.step_aside(FLOOD_GROUP, free).unwrap();
        groups.has_stepped_aside(FLOOD_GROUP);
        let mut restored = HiddenGroups::decode(&groups.encode()).unwrap();
        assert_eq!(restored.numbers, groups.numbers);
        assert_eq!(restored.by_number, groups.by_number);
        restored.retain_watched(|hidden| hidden == Hidden::Port(3));
        let left: Vec<Hidden> = restored.numbers.into_keys().collect();
        assert_eq!(left, [Hidden::Flood, Hidden::All, Hidden::Port(3)]);
        let twice = [groups.encode(), groups.encode()].concat();
        assert!(HiddenGroups::decode(&twice).is_some());
        assert!(HiddenGroups::decode(&twice[1..]).is_none());
    }
}
