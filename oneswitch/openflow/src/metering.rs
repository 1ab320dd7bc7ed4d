//! Meters behind other actions, inside `clone` and in buckets, which OpenFlow 1.5 has: inside of this program they are its actions, in messages
//! of OpenFlow 1.3.
//!
//! Open vSwitch writes a meter over OpenFlow 1.3 and 1.4 as an instruction, wherever it stands (`encode_METER`, lib/ofp-actions.c): between two
//! lists of applied actions, and, with the bytes of an instruction, among the actions of a `clone` or a bucket. So it can be read there. No
//! request of these versions can have it.

use crate::action::{action_kind, flatten, Action, ActionItem, ActionList, Actions};
use crate::group::{Bucket, Buckets};
use crate::instruction::{raw_instructions, Instructions, APPLY_ACTIONS, HEADER, METER};
use crate::wire::{patch_length, patch_u16, u16_at, u32_at, Put};

/// Bytes of the action, and of the instruction.
const LENGTH: usize = 8;

impl ActionItem<'_> {
    /// Returns the meter of OpenFlow 1.5's action.
    pub fn meter(&self) -> Option<u32> {
        match self.action {
            Action::Other {
                kind: action_kind::METER,
                body,
            } => u32_at(body, 0),
            _ => None,
        }
    }
}

/// The treatment of the meters of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Writes them as Open vSwitch does before OpenFlow 1.5.
    Spell,
    /// Reads them as written so.
    Read,
    Remove,
}

fn changed(list: Actions<'_>, change: Change) -> Vec<u8> {
    let mut out = Vec::with_capacity(list.as_bytes().len());
    for item in list.iter() {
        let start = out.len();
        if let Some(nested) = item.nested() {
            let header = item.raw.len() - nested.as_bytes().len();
            out.put(item.raw.get(..header).unwrap_or_default());
            out.put(&changed(nested, change));
            patch_length(&mut out, start, 2);
            continue;
        }
        match (u16_at(item.raw, 0), change) {
            (Some(action_kind::METER), Change::Remove) => {}
            (Some(action_kind::METER), Change::Spell) => {
                out.put(item.raw);
                patch_u16(&mut out, start, METER);
            }
            // Open vSwitch writes OpenFlow 1.1's action of this number as a set_field.
            (Some(METER), Change::Read) => {
                out.put(item.raw);
                patch_u16(&mut out, start, action_kind::METER);
            }
            _ => out.put(item.raw),
        }
    }
    out
}

fn has_meter(list: Actions<'_>) -> bool {
    let mut found = false;
    flatten(list, &mut |item| found |= item.meter().is_some());
    found
}

impl ActionList {
    /// Tells whether it has meters.
    pub fn has_meter(&self) -> bool {
        has_meter(self.as_actions())
    }

    /// Returns the list without its meters.
    #[must_use]
    pub fn without_meters(&self) -> Self {
        Self(changed(self.as_actions(), Change::Remove))
    }
}

impl Instructions {
    /// Tells whether a meter is not before all actions.
    pub fn have_meter_inside(&self) -> bool {
        // Actions start at multiples of 8 bytes, also nested ones.
        let kind = action_kind::METER.to_be_bytes();
        let mut starts = self.as_bytes().chunks(8);
        if !starts.any(|start| start.starts_with(&kind)) {
            return false;
        }
        let mut found = false;
        self.for_each_action(&mut |item| found |= item.meter().is_some());
        found
    }

    /// Returns the instructions without the meters that are not before all actions.
    #[must_use]
    pub fn without_meters_inside(&self) -> Self {
        let mut out = Vec::with_capacity(self.as_bytes().len());
        for (kind, raw, body) in self.raw() {
            match kind {
                APPLY_ACTIONS => {
                    let list = changed(Actions::trusted(body, 0), Change::Remove);
                    put_applied(&mut out, &list);
                }
                _ => out.put(raw),
            }
        }
        Self::trusted(out)
    }

    /// Writes the instructions as Open vSwitch does before OpenFlow 1.5
    /// (`ofpacts_put_openflow_instructions`).
    pub(crate) fn put_before_15(&self, out: &mut Vec<u8>) {
        if !self.have_meter_inside() {
            return out.put(self.as_bytes());
        }
        for (kind, raw, body) in self.raw() {
            if kind != APPLY_ACTIONS {
                out.put(raw);
                continue;
            }
            let mut applied = Vec::new();
            for item in Actions::trusted(body, 0) {
                match item.meter() {
                    Some(meter) => {
                        put_applied(out, &std::mem::take(&mut applied));
                        out.put_u16(METER);
                        out.put_u16(LENGTH as u16);
                        out.put_u32(meter);
                    }
                    None => {
                        let one = Actions::trusted(item.raw, 0);
                        applied.put(&changed(one, Change::Spell));
                    }
                }
            }
            put_applied(out, &applied);
        }
    }

    /// Reads what [`Self::put_before_15`] writes.
    pub(crate) fn gathered(self) -> Self {
        if !self.are_scattered() {
            return self;
        }
        let mut out = Vec::with_capacity(self.as_bytes().len());
        let mut applied = Vec::new();
        let mut is_first = true;
        for (kind, raw, body) in self.raw() {
            match kind {
                METER if is_first => out.put(raw),
                METER => {
                    applied.put(raw);
                    let start = applied.len() - raw.len();
                    patch_u16(&mut applied, start, action_kind::METER);
                }
                APPLY_ACTIONS => applied.put(&changed(Actions::trusted(body, 0), Change::Read)),
                _ => {
                    put_applied(&mut out, &std::mem::take(&mut applied));
                    out.put(raw);
                }
            }
            is_first = false;
        }
        put_applied(&mut out, &applied);
        Self::trusted(out)
    }

    /// Tells whether there may be meters that are not before all actions, as an earlier
    /// version writes them.
    fn are_scattered(&self) -> bool {
        let (mut meters, mut lists, mut is_nested) = (0, 0, false);
        for (kind, _, body) in self.raw() {
            match kind {
                METER => meters += 1 + lists,
                APPLY_ACTIONS => {
                    lists += 1;
                    let mut list = Actions::trusted(body, 0).iter();
                    is_nested |= list.any(|item| item.nested().is_some());
                }
                _ => {}
            }
        }
        meters > 1 || lists > 1 || is_nested
    }

    /// Iterates over kind, all bytes, and body of each instruction.
    fn raw(&self) -> impl Iterator<Item = (u16, &[u8], &[u8])> {
        let bytes = self.as_bytes();
        raw_instructions(bytes).map(|(kind, offset, body)| {
            let raw = bytes.get(offset - HEADER..offset + body.len());
            (kind, raw.unwrap_or_default(), body)
        })
    }
}

/// Appends an instruction that applies actions; none if there are none.
fn put_applied(out: &mut Vec<u8>, list: &[u8]) {
    if list.is_empty() {
        return;
    }
    let start = out.len();
    out.put_u16(APPLY_ACTIONS);
    out.zeros(HEADER - 2);
    out.put(list);
    patch_length(out, start, 2);
}

impl Buckets {
    /// Tells whether a bucket has a meter.
    pub fn have_meter(&self) -> bool {
        self.iter().any(|bucket| has_meter(bucket.actions))
    }

    /// Returns the meters of each bucket, in order.
    pub fn meters(&self) -> Vec<Vec<u32>> {
        self.iter()
            .map(|bucket| meters_of(bucket.actions))
            .collect()
    }

    /// Returns the buckets without their meters.
    #[must_use]
    pub fn without_meters(&self) -> Self {
        self.changed(Change::Remove)
    }

    /// Returns the buckets as Open vSwitch writes them before OpenFlow 1.5.
    pub(crate) fn before_15(&self) -> Self {
        self.changed(Change::Spell)
    }

    /// Reads what [`Self::before_15`] returns.
    pub(crate) fn gathered(self) -> Self {
        self.changed(Change::Read)
    }

    fn changed(&self, change: Change) -> Self {
        let lists: Vec<Vec<u8>> = self
            .iter()
            .map(|bucket| changed(bucket.actions, change))
            .collect();
        Self::with_ids(self.iter().zip(&lists).map(|(bucket, list)| Bucket {
            actions: Actions::trusted(list, 0),
            ..bucket
        }))
    }
}

/// Returns the meters of a list, also those inside other actions.
pub(crate) fn meters_of(list: Actions<'_>) -> Vec<u32> {
    let mut found = Vec::new();
    flatten(list, &mut |item| found.extend(item.meter()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Strictness;

    const POP: [u8; 8] = [0, 18, 0, 8, 0, 0, 0, 0];
    const GOTO: [u8; 8] = [0, 1, 0, 8, 3, 0, 0, 0];

    fn action(meter: u8) -> [u8; 8] {
        [0, 29, 0, 8, 0, 0, 0, meter]
    }

    fn instruction(meter: u8) -> [u8; 8] {
        [0, 6, 0, 8, 0, 0, 0, meter]
    }

    fn apply(list: &[[u8; 8]]) -> Vec<u8> {
        let length = 8 + 8 * list.len() as u8;
        [&[0, 4, 0, length, 0, 0, 0, 0][..], &list.concat()].concat()
    }

    fn clone_of(inside: [u8; 8]) -> [[u8; 8]; 3] {
        [
            [0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20],
            [0, 42, 0, 0, 0, 0, 0, 0],
            inside,
        ]
    }

    #[test]
    fn meters_are_instructions_between_actions_before_openflow_15() {
        let nested = clone_of(action(4));
        let spelled = clone_of(instruction(4));
        for (inside, before) in [
            (apply(&[POP]), apply(&[POP])),
            (
                [&instruction(1)[..], &apply(&[action(2), POP])].concat(),
                [&instruction(1)[..], &instruction(2), &apply(&[POP])].concat(),
            ),
            (
                [
                    &apply(&[POP, action(2), action(3), POP, action(1)])[..],
                    &GOTO,
                ]
                .concat(),
                [
                    &apply(&[POP])[..],
                    &instruction(2),
                    &instruction(3),
                    &apply(&[POP]),
                    &instruction(1),
                    &GOTO,
                ]
                .concat(),
            ),
            (apply(&nested), apply(&spelled)),
        ] {
            let inside = Instructions::from_bytes(inside).unwrap();
            let mut out = Vec::new();
            inside.put_before_15(&mut out);
            assert_eq!(out, before);
            let read = Instructions::decode(&out, Strictness::Reply).unwrap();
            assert_eq!(read, inside);
        }
    }

    #[test]
    fn a_rule_is_left_without_its_meters() {
        let nested = clone_of(action(4));
        let list = [&[POP, action(2)][..], &nested].concat();
        let whole = [&instruction(1)[..], &apply(&list), &GOTO].concat();
        let whole = Instructions::from_bytes(whole).unwrap();
        assert!(whole.have_meter_inside());
        let [first, second, _] = nested;
        let mut rest = apply(&[POP, [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20], second]);
        rest.splice(0..0, instruction(1));
        rest.extend(GOTO);
        assert_eq!(first[3], 24);
        let left = whole.without_meters_inside();
        assert_eq!(left.as_bytes(), rest);
        assert!(!left.have_meter_inside());
    }

    #[test]
    fn buckets_have_the_bytes_of_instructions() {
        let list = ActionList([POP, action(7)].concat());
        let buckets = Buckets::build([(0, 1, 2, &list)]);
        assert_eq!(buckets.meters(), [[7]]);
        let before = buckets.before_15();
        assert!(before.as_bytes().ends_with(&[POP, instruction(7)].concat()));
        assert_eq!(before.gathered(), buckets);
        assert!(!buckets.without_meters().have_meter());
    }
}
