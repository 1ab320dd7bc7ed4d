//! The fields in actions as Open vSwitch reports them (lib/ofp-actions.c, lib/learn.c): in Nicira's actions in Nicira's form (NXM) where that has them,
//! over every version; in ONF's copies in OpenFlow's form (OXM).

use super::spelling::u16_at;
use openflow13::openflow10::nxm_name;

const REG_MOVE: u16 = 6;
const REG_LOAD: u16 = 7;
const OUTPUT_REG: u16 = 15;
const LEARN: u16 = 16;
const LEARN2: u16 = 45;
/// `nx_action_learn`, `nx_action_learn2`, without specifications.
const LEARN_BYTES: usize = 32;
const LEARN2_BYTES: usize = 40;
const FLAGS: usize = 24;
const WRITES_RESULT: u16 = 1 << 2;
/// Of a specification: bits of the field, a number in place of a source, and the kind of what it does.
const BITS: u16 = 0x3ff;
const IS_NUMBER: u16 = 1 << 13;
const KIND: u16 = 3 << 11;
const OUTPUT: u16 = 2 << 11;
const BASIC: u16 = 0x8000;
const EXPERIMENTER: u16 = 0xffff;
/// `onf_action_copy_field`: its type, its bytes before the fields, and the last field of OpenFlow's basic class.
const COPY_FIELD: u16 = 3200;
const COPY_BYTES: usize = 20;
const LAST_BASIC: u8 = 44;
/// Fields that Open vSwitch keeps apart from NXM's, which have another width: in_port and ip_dscp.
const OWN: [u8; 2] = [0, 8];

/// Returns an action with its fields in Nicira's form; `None`: it has none, or cannot be read.
pub fn spelled(action: &[u8]) -> Option<Vec<u8>> {
    let (head, count) = match u16_at(action, 8)? {
        REG_MOVE => (16, 2),
        REG_LOAD | OUTPUT_REG => (12, 1),
        _ => return spelled_learn(action),
    };
    let (start, mut rest) = action.split_at_checked(head)?;
    let mut out = start.to_vec();
    for _ in 0..count {
        put_field(&mut rest, &mut out)?;
    }
    out.extend(rest);
    Some(out)
}

/// Returns a copy in ONF's form with its fields in OpenFlow's form; `None`: another action.
pub fn spelled_copy(action: &[u8]) -> Option<Vec<u8>> {
    if u16_at(action, 8)? != COPY_FIELD {
        return None;
    }
    let (start, mut rest) = action.split_at_checked(COPY_BYTES)?;
    let mut out = start.to_vec();
    for _ in 0..2 {
        let class = u16_at(rest, 0)?;
        let number = *rest.get(2)? >> 1;
        let is_same =
            |field: &u8| !OWN.contains(field) && nxm_name(*field) == Some((class, number));
        match (0..=LAST_BASIC).find(is_same) {
            Some(field) => {
                out.extend(BASIC.to_be_bytes());
                out.extend([field << 1, *rest.get(3)?]);
                rest = rest.get(4..)?;
            }
            None => take(
                if class == EXPERIMENTER { 8 } else { 4 },
                &mut rest,
                &mut out,
            )?,
        }
    }
    out.extend(rest);
    Some(out)
}

fn spelled_learn(action: &[u8]) -> Option<Vec<u8>> {
    let (head, has_result) = match u16_at(action, 8)? {
        LEARN => (LEARN_BYTES, false),
        LEARN2 => (LEARN2_BYTES, u16_at(action, FLAGS)? & WRITES_RESULT != 0),
        _ => return None,
    };
    let (start, mut rest) = action.split_at_checked(head)?;
    let mut out = start.to_vec();
    if has_result {
        put_field(&mut rest, &mut out)?;
    }
    while let Some(header) = u16_at(rest, 0).filter(|header| *header != 0) {
        take(2, &mut rest, &mut out)?;
        match header & IS_NUMBER {
            0 => put_part(&mut rest, &mut out)?,
            _ => take(
                usize::from(header & BITS).div_ceil(16) * 2,
                &mut rest,
                &mut out,
            )?,
        }
        if header & KIND != OUTPUT {
            put_part(&mut rest, &mut out)?;
        }
    }
    out.extend(rest);
    Some(out)
}

/// Copies a field and the offset in it.
fn put_part(rest: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
    put_field(rest, out)?;
    take(2, rest, out)
}

/// Copies the header of a field, by its name in NXM.
fn put_field(rest: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
    let class = u16_at(rest, 0)?;
    let [name, length] = [*rest.get(2)?, *rest.get(3)?];
    let field = name >> 1;
    match nxm_name(field).filter(|_| class == BASIC && !OWN.contains(&field)) {
        Some((class, field)) => {
            *rest = rest.get(4..)?;
            out.extend(class.to_be_bytes());
            out.extend([field << 1 | name & 1, length]);
            Some(())
        }
        None => take(if class == EXPERIMENTER { 8 } else { 4 }, rest, out),
    }
}

fn take(count: usize, rest: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (taken, left) = rest.split_at_checked(count)?;
    out.extend(taken);
    *rest = left;
    Some(())
}
