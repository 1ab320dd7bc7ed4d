//! Repairing a switch: from its found state to the wanted one.

use crate::layout::findings::{lacking, Findings, FOREIGN};
use crate::layout::messages::{group_removal, messages_of_group};
use crate::layout::spelling::{same_bands, same_buckets};
use crate::model::truth::Meter;
use foldhash::HashMap;
use openflow13::{
    GroupDesc, GroupMod, GroupModCommand, Message, MeterConfig, MeterMod, MeterModCommand,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A difference between the found and the wanted state.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference<F, W> {
    /// Found, but not wanted.
    pub surplus: Vec<F>,
    /// Wanted, but missing or different; with the item found instead.
    pub lacking: Vec<(W, Option<F>)>,
}

/// Compares by key. `same` tells whether a found item equals the wanted one.
pub fn diff<K: Ord, F, W>(
    found: impl IntoIterator<Item = (K, F)>,
    wanted: impl IntoIterator<Item = (K, W)>,
    same: impl Fn(&F, &W) -> bool,
) -> Difference<F, W> {
    let mut found: BTreeMap<K, F> = found.into_iter().collect();
    let mut lacking = Vec::new();
    for (key, wanted) in wanted {
        let there = found.remove(&key);
        if !there.as_ref().is_some_and(|there| same(there, &wanted)) {
            lacking.push((wanted, there));
        }
    }
    let surplus = found.into_values().collect();
    Difference { surplus, lacking }
}

/// The repairs of a switch's groups or meters.
#[derive(Debug, Default)]
pub struct Repair {
    pub messages: Vec<Message>,
    /// The findings that the messages repair.
    pub found: Findings,
    /// Whether some differ that messages in flight change, so that they must be compared again.
    pub again: bool,
}

impl Repair {
    /// Adds the messages about one group or meter.
    fn add(&mut self, is_in_flight: bool, kind: &str, messages: Vec<Message>) {
        self.again |= is_in_flight;
        if !is_in_flight {
            self.found.add(kind, || match messages.first() {
                Some(Message::MeterMod(meter)) => format!("meter {}", meter.meter_id),
                Some(Message::GroupMod(group)) => format!("group {}", group.group_id),
                _ => String::new(),
            });
            self.messages.extend(messages);
        }
    }
}

pub fn groups(
    found: &[GroupDesc],
    wanted: BTreeMap<u32, GroupMod>,
    is_in_flight: impl Fn(u32) -> bool,
) -> Repair {
    let found = found.iter().map(|group| (group.group_id, group));
    let difference = diff(found, wanted, |there, group| {
        there.group_type == group.group_type && same_buckets(&there.buckets, &group.buckets)
    });
    let mut repair = Repair::default();
    for surplus in difference.surplus {
        let removal = Message::GroupMod(group_removal(surplus.group_id));
        repair.add(is_in_flight(surplus.group_id), FOREIGN, vec![removal]);
    }
    for (mut group, there) in difference.lacking {
        let kind = lacking(&there);
        if there.is_some() {
            group.command = GroupModCommand::Modify;
        }
        let is_in_flight = is_in_flight(group.group_id);
        let messages = messages_of_group(group).into_iter();
        repair.add(
            is_in_flight,
            kind,
            messages.map(Message::GroupMod).collect(),
        );
    }
    repair
}

pub fn meters(
    found: &[MeterConfig],
    wanted: BTreeMap<u32, Arc<Meter>>,
    is_in_flight: impl Fn(u32) -> bool,
) -> Repair {
    let found = found.iter().map(|meter| (meter.meter_id, meter));
    let difference = diff(found, wanted, |there, meter| {
        there.flags == meter.flags && same_bands(&there.bands, &meter.bands)
    });
    let mut repair = Repair::default();
    for surplus in difference.surplus {
        let message = MeterMod {
            command: MeterModCommand::Delete,
            flags: 0,
            meter_id: surplus.meter_id,
            bands: Box::default(),
        };
        let is_in_flight = is_in_flight(surplus.meter_id);
        repair.add(is_in_flight, FOREIGN, vec![Message::MeterMod(message)]);
    }
    for (meter, there) in difference.lacking {
        let message = MeterMod {
            command: match there {
                Some(_) => MeterModCommand::Modify,
                None => MeterModCommand::Add,
            },
            flags: meter.flags,
            meter_id: meter.id,
            bands: meter.bands.clone(),
        };
        let kind = lacking(&there);
        repair.add(
            is_in_flight(meter.id),
            kind,
            vec![Message::MeterMod(message)],
        );
    }
    repair
}

/// Returns the state wanted before the messages in flight.
pub fn before_flight<T>(
    truth: &BTreeMap<u32, Arc<T>>,
    in_flight: &HashMap<u32, Option<Arc<T>>>,
) -> BTreeMap<u32, Arc<T>> {
    let mut expected = truth.clone();
    for (id, before) in in_flight {
        match before {
            Some(before) => drop(expected.insert(*id, Arc::clone(before))),
            None => drop(expected.remove(id)),
        }
    }
    expected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_missing_and_different_things_are_told_apart() {
        let found = [(1, "same"), (2, "other"), (3, "surplus")];
        let wanted = [(4, "missing"), (2, "wanted"), (1, "same")];
        let difference = diff(found, wanted, |there, wanted| there == wanted);
        assert_eq!(difference.surplus, ["surplus"]);
        let lacking = [("missing", None), ("wanted", Some("other"))];
        assert_eq!(difference.lacking, lacking);
    }
}
