//! Copies of fields: those that controllers write as the extension of OpenFlow 1.3
//! are Nicira's action in OpenFlow 1.0 and 1.4 (`encode_REG_MOVE`).

use crate::action::{nicira_action as nx, Action, ActionItem, Actions};
use crate::action_check::ONF_COPY_FIELD;
use crate::field::class;
use crate::group::{Bucket, Buckets};
use crate::instruction::{raw_instructions, Instructions, APPLY_ACTIONS, HEADER, WRITE_ACTIONS};
use crate::wire::{padded, patch_length, u16_at, Put};
use crate::ONF_VENDOR;

use super::matching::nxm_name;
use super::padding::put_nicira;

/// Bytes of `onf_action_copy_field` before its numbers, and before its fields.
const NUMBERS: usize = 12;
const FIELDS: usize = 20;

/// Returns a copy in ONF's form as Nicira's action; `None`: another action.
pub(super) fn as_move(item: &ActionItem<'_>) -> Option<Vec<u8>> {
    let Action::Experimenter {
        vendor: ONF_VENDOR,
        body,
    } = item.action
    else {
        return None;
    };
    if u16_at(body, 0) != Some(ONF_COPY_FIELD) {
        return None;
    }
    let mut moved = item.raw.get(NUMBERS..NUMBERS + 6)?.to_vec();
    let mut fields = item.raw.get(FIELDS..)?;
    for _ in 0..2 {
        let kind = u16_at(fields, 0)?;
        let length = if kind == class::EXPERIMENTER { 8 } else { 4 };
        let (header, rest) = fields.split_at_checked(length)?;
        let number = header.get(2).map(|number| number >> 1);
        let name = match kind {
            class::OPENFLOW_BASIC => number.and_then(nxm_name),
            _ => None,
        };
        match name {
            Some((class, number)) => {
                moved.put_u16(class);
                moved.put(&[number << 1]);
                moved.put(header.get(3..)?);
            }
            None => moved.put(header),
        }
        fields = rest;
    }
    let length = padded(moved.len() + 10) - 10;
    moved.resize(length, 0);
    let mut out = Vec::new();
    put_nicira(&mut out, nx::REG_MOVE, &moved);
    Some(out)
}

/// Returns a list with Nicira's actions for copies in ONF's form, also inside others.
fn with_moves(list: Actions<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(list.as_bytes().len());
    for item in list.iter() {
        match (item.nested(), as_move(&item)) {
            (Some(nested), _) => {
                let start = out.len();
                let header = item.raw.len() - nested.as_bytes().len();
                out.put(item.raw.get(..header).unwrap_or_default());
                out.put(&with_moves(nested));
                patch_length(&mut out, start, 2);
            }
            (None, Some(moved)) => out.put(&moved),
            (None, None) => out.put(item.raw),
        }
    }
    out
}

/// Returns instructions with Nicira's actions for copies in ONF's form.
pub(crate) fn instructions_with_moves(instructions: &Instructions) -> Instructions {
    let bytes = instructions.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    for (kind, offset, body) in raw_instructions(bytes) {
        let start = out.len();
        out.put(bytes.get(offset - HEADER..offset).unwrap_or_default());
        match kind {
            APPLY_ACTIONS | WRITE_ACTIONS => out.put(&with_moves(Actions::trusted(body, 0))),
            _ => out.put(body),
        }
        patch_length(&mut out, start, 2);
    }
    Instructions::trusted(out)
}

/// Does the same for buckets, which have no numbers before OpenFlow 1.5.
pub(crate) fn buckets_with_moves(buckets: &Buckets) -> Buckets {
    let moved: Vec<(Bucket<'_>, Vec<u8>)> = buckets
        .iter()
        .map(|bucket| (bucket, with_moves(bucket.actions)))
        .collect();
    Buckets::with_ids(moved.iter().map(|(bucket, list)| Bucket {
        id: 0,
        actions: Actions::trusted(list, 0),
        ..*bucket
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Strictness;
    use crate::action_check::check;

    /// move:reg0[0..7]->NXM_OF_ETH_SRC[40..47], in ONF's form.
    const COPY: [u8; 32] = [
        0xff, 0xff, 0, 32, 0x4f, 0x4e, 0x46, 0, 0x0c, 0x80, 0, 0, 0, 8, 0, 0, 0, 40, 0, 0, 0, 1, 0,
        4, 0x80, 0, 8, 6, 0, 0, 0, 0,
    ];
    const MOVE: [u8; 24] = [
        0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20, 0, 6, 0, 8, 0, 0, 0, 40, 0, 1, 0, 4, 0, 0, 4, 6,
    ];

    #[test]
    fn a_copy_becomes_a_move() {
        check(&COPY, Strictness::Request).unwrap();
        check(&MOVE, Strictness::Request).unwrap();
        assert_eq!(with_moves(Actions::trusted(&COPY, 0)), MOVE);
    }

    #[test]
    fn other_actions_stay() {
        let pop = [0, 18, 0, 8, 0, 0, 0, 0];
        let list = [pop.as_slice(), &COPY, &pop].concat();
        let moved = [pop.as_slice(), &MOVE, &pop].concat();
        assert_eq!(with_moves(Actions::trusted(&list, 0)), moved);
    }

    #[test]
    fn nested_copies_become_moves() {
        let clone = |length, inside: &[u8]| {
            let mut out = vec![
                0xff, 0xff, 0, length, 0, 0, 0x23, 0x20, 0, 42, 0, 0, 0, 0, 0, 0,
            ];
            out.extend(inside);
            out
        };
        let list = clone(48, &COPY);
        assert_eq!(with_moves(Actions::trusted(&list, 0)), clone(40, &MOVE));
    }

    #[test]
    fn lists_of_instructions_and_buckets_keep_the_rest() {
        let mut bytes = vec![0, 4, 0, 40, 0, 0, 0, 0];
        bytes.extend(COPY);
        bytes.extend([0, 1, 0, 8, 3, 0, 0, 0]);
        let mut moved = vec![0, 4, 0, 32, 0, 0, 0, 0];
        moved.extend(MOVE);
        moved.extend([0, 1, 0, 8, 3, 0, 0, 0]);
        let instructions = Instructions::from_bytes(bytes).unwrap();
        assert_eq!(instructions_with_moves(&instructions).as_bytes(), moved);
        let bucket = |id, list: &[u8]| {
            Buckets::with_ids([Bucket {
                id,
                weight: 1,
                watch_port: 2,
                watch_group: 3,
                actions: Actions::trusted(list, 0),
            }])
        };
        assert_eq!(buckets_with_moves(&bucket(7, &COPY)), bucket(0, &MOVE));
    }
}
