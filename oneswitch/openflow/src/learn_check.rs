//! The checks of Open vSwitch 3.1 when it decodes a `learn` action (`decode_LEARN_common`,
//! `decode_LEARN_specs`, lib/ofp-actions.c), before it looks at later actions, or at what
//! contains them. Fields are checked once all is decoded, by the switches.

use crate::action::nicira_action::LEARN2;
use crate::error::{ErrorCode, Refusal};
use crate::wire::{u16_at, Reader};

/// Bytes of `nx_action_learn`, and of `nx_action_learn2` without a result.
const HEADER: usize = 32;
const FLAGS: usize = 24;
/// `NX_LEARN_F_SEND_FLOW_REM`, `NX_LEARN_F_DELETE_LEARNED`.
const KNOWN_FLAGS: u16 = 3;
/// `NX_LEARN_F_WRITE_RESULT`.
const WRITE_RESULT: u16 = 4;

/// The header of a specification.
mod spec {
    pub const BITS: u16 = 0x3ff;
    pub const IS_IMMEDIATE: u16 = 1 << 13;
    pub const TARGET: u16 = 3 << 11;
    pub const MATCH: u16 = 0;
    pub const LOAD: u16 = 1 << 11;
    pub const OUTPUT: u16 = 2 << 11;
}

/// Checks a whole action, `learn` or `learn2`.
pub(crate) fn check(raw: &[u8], subtype: u16) -> Result<(), Refusal> {
    let [table, padding] = raw
        .get(FLAGS + 2..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .unwrap_or_default();
    if padding != 0 {
        return refuse("learn with non-zero padding");
    }
    if table == u8::MAX {
        return refuse("learn in table 255");
    }
    let flags = u16_at(raw, FLAGS).unwrap_or_default();
    if subtype == LEARN2 {
        return match flags & !(KNOWN_FLAGS | WRITE_RESULT) {
            0 => Ok(()),
            _ => refuse("learn with unknown flags"),
        };
    }
    if flags & !KNOWN_FLAGS != 0 {
        return refuse("learn with unknown flags");
    }
    specs(raw.get(HEADER..).unwrap_or_default())
}

/// Checks the specifications, which an empty one or the action's end ends.
fn specs(list: &[u8]) -> Result<(), Refusal> {
    let mut reader = Reader::new(list);
    while let Ok(header) = reader.u16() {
        if header == 0 {
            break;
        }
        let is_immediate = header & spec::IS_IMMEDIATE != 0;
        let target = header & spec::TARGET;
        let takes_field = matches!(target, spec::MATCH | spec::LOAD);
        if !takes_field && (target != spec::OUTPUT || is_immediate) {
            return refuse("learn with a specification of unknown kind");
        }
        let source = match is_immediate {
            true => 2 * usize::from(header & spec::BITS).div_ceil(16),
            false => 6,
        };
        let length = source + if takes_field { 6 } else { 0 };
        reader.skip(length).map_err(|_| {
            Refusal::new(
                ErrorCode::BAD_ACTION_BAD_LEN,
                "learn with a cut-off specification",
            )
        })?;
    }
    match reader.rest().iter().all(|&byte| byte == 0) {
        true => Ok(()),
        false => refuse("learn with bytes behind its specifications"),
    }
}

fn refuse(detail: &'static str) -> Result<(), Refusal> {
    Err(Refusal::new(ErrorCode::BAD_ACTION_BAD_ARGUMENT, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::nicira_action::LEARN;

    /// Returns a `learn` with this flags word, table, padding and specifications.
    fn learn(flags: u16, table: u8, padding: u8, specs: &[u8]) -> Vec<u8> {
        let mut raw = vec![0; HEADER];
        raw[FLAGS..FLAGS + 2].copy_from_slice(&flags.to_be_bytes());
        raw[FLAGS + 2] = table;
        raw[FLAGS + 3] = padding;
        raw.extend(specs);
        raw
    }

    #[test]
    fn each_fault_gets_the_error_of_open_vswitch() {
        const TAG: [u8; 14] = [0, 12, 0x80, 0, 8, 6, 0, 0, 0x80, 0, 6, 6, 0, 0];
        const PORT: [u8; 8] = [0x10, 32, 0x80, 0, 0, 4, 0, 0];
        let bad = Some(ErrorCode::BAD_ACTION_BAD_ARGUMENT);
        let cut = Some(ErrorCode::BAD_ACTION_BAD_LEN);
        let whole = [&TAG[..], &PORT[..], &[0, 0]].concat();
        for (raw, expected) in [
            (learn(3, 1, 0, &whole), None),
            (learn(4, 1, 0, &whole), bad),
            (learn(8, 1, 0, &whole), bad),
            (learn(0, 255, 0, &whole), bad),
            (learn(0, 1, 1, &whole), bad),
            (learn(0, 1, 0, &whole[..12]), cut),
            (learn(0, 1, 0, &[0x30, 16, 0, 1, 0, 0, 0, 0]), bad),
            (learn(0, 1, 0, &[0x20, 16, 0, 1, 0x80, 0, 8, 6, 0, 0]), None),
            (learn(0, 1, 0, &[0x18, 16, 0, 1]), bad),
            (learn(0, 1, 0, &[0, 0, 0, 1]), bad),
        ] {
            let found = check(&raw, LEARN).err().map(|refusal| refusal.error);
            assert_eq!(found, expected, "{raw:02x?}");
        }
        assert!(check(&learn(4, 1, 0, &[0; 8]), LEARN2).is_ok());
        assert!(check(&learn(8, 1, 0, &[0; 8]), LEARN2).is_err());
    }
}
