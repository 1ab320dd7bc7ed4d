//! Instructions: in OpenFlow 1.5 a meter is an action.

use crate::action::{action_kind, Actions};
use crate::error::{ErrorCode, Refusal};
use crate::instruction::{raw_instructions, Instructions};
use crate::instruction::{APPLY_ACTIONS, HEADER, METER, WRITE_ACTIONS};
use crate::wire::{patch_length, Put};

use super::actions;

/// Bytes of an action that meters.
const METER_ACTION: usize = 8;

/// Translates instructions that were checked to OpenFlow 1.3.
///
/// # Errors
/// See [`actions::to_13`].
pub(crate) fn to_13(instructions: &Instructions) -> Result<Instructions, Refusal> {
    let bytes = instructions.as_bytes();
    let mut out = Vec::with_capacity(bytes.len() + HEADER);
    for (kind, offset, body) in raw_instructions(bytes) {
        match kind {
            APPLY_ACTIONS => {
                let first = Actions::trusted(body, 0).iter().next();
                let meter = first.and_then(|item| item.meter());
                let rest = body.get(meter.map_or(0, |_| METER_ACTION)..);
                if let Some(meter) = meter {
                    out.put_u16(METER);
                    out.put_u16(METER_ACTION as u16);
                    out.put_u32(meter);
                }
                put_actions(&mut out, kind, &actions::to_13(rest.unwrap_or_default())?);
            }
            WRITE_ACTIONS => {
                if Actions::trusted(body, 0)
                    .iter()
                    .any(|item| item.meter().is_some())
                {
                    let detail = "a meter in the action set";
                    return Err(Refusal::new(ErrorCode::BAD_ACTION_BAD_TYPE, detail));
                }
                put_actions(&mut out, kind, &actions::to_13(body)?);
            }
            _ => out.put(
                bytes
                    .get(offset - HEADER..offset + body.len())
                    .unwrap_or_default(),
            ),
        }
    }
    Ok(Instructions::trusted(out))
}

fn put_actions(out: &mut Vec<u8>, kind: u16, list: &[u8]) {
    let start = out.len();
    out.put_u16(kind);
    out.zeros(HEADER - 2);
    out.put(list);
    patch_length(out, start, 2);
}

/// Translates instructions that Open vSwitch has spelled over OpenFlow 1.3, a meter
/// before the actions.
pub(crate) fn to_15(instructions: &Instructions) -> Vec<u8> {
    let bytes = instructions.as_bytes();
    let mut out = Vec::with_capacity(bytes.len() + HEADER);
    let mut metered = Vec::new();
    for (kind, offset, body) in raw_instructions(bytes) {
        let raw = bytes
            .get(offset - HEADER..offset + body.len())
            .unwrap_or_default();
        match kind {
            METER => {
                metered.put_u16(action_kind::METER);
                metered.put_u16(METER_ACTION as u16);
                metered.put(raw.get(4..).unwrap_or_default());
            }
            APPLY_ACTIONS => {
                metered.put(&actions::to_15(body));
                put_actions(&mut out, kind, &std::mem::take(&mut metered));
            }
            _ => {
                put_metered(&mut out, &mut metered);
                match kind {
                    WRITE_ACTIONS => put_actions(&mut out, kind, &actions::to_15(body)),
                    _ => out.put(raw),
                }
            }
        }
    }
    put_metered(&mut out, &mut metered);
    out
}

/// Appends a meter without other actions.
fn put_metered(out: &mut Vec<u8>, metered: &mut Vec<u8>) {
    if !metered.is_empty() {
        put_actions(out, APPLY_ACTIONS, &std::mem::take(metered));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Strictness;

    const METER_1: [u8; 8] = [0, 29, 0, 8, 0, 0, 0, 1];
    const POP: [u8; 8] = [0, 18, 0, 8, 0, 0, 0, 0];

    fn list(kind: u8, actions: &[[u8; 8]]) -> Vec<u8> {
        let length = 8 + 8 * actions.len() as u8;
        [&[0, kind, 0, length, 0, 0, 0, 0][..], &actions.concat()].concat()
    }

    fn decoded(bytes: &[u8]) -> Result<Instructions, Refusal> {
        Instructions::decode(bytes, Strictness::Request15).and_then(|list| to_13(&list))
    }

    #[test]
    fn a_meter_is_an_instruction_in_openflow_13() {
        for actions in [&[METER_1][..], &[METER_1, POP], &[POP]] {
            for more in [&[][..], &[0, 5, 0, 8, 0, 0, 0, 0]] {
                let written = [&list(4, actions), more].concat();
                let old = decoded(&written).unwrap();
                assert!(Instructions::from_bytes(old.as_bytes().to_vec()).is_ok());
                // Open vSwitch leaves out an empty list.
                let told: Vec<u8> = match actions {
                    [METER_1] => [&old.as_bytes()[..8], more].concat(),
                    _ => old.as_bytes().to_vec(),
                };
                assert_eq!(to_15(&Instructions::trusted(told)), written);
            }
        }
    }

    #[test]
    fn a_meter_behind_actions_stays_one() {
        for actions in [
            &[POP, METER_1][..],
            &[METER_1, METER_1],
            &[METER_1, POP, METER_1],
        ] {
            let written = list(4, actions);
            let old = decoded(&written).unwrap();
            assert!(old.have_meter_inside());
            assert_eq!(to_15(&old), written);
        }
    }

    #[test]
    fn a_meter_elsewhere_is_refused() {
        for (bytes, error) in [
            (list(3, &[METER_1]), ErrorCode::BAD_ACTION_BAD_TYPE),
            (
                vec![0, 6, 0, 8, 0, 0, 0, 1],
                ErrorCode::BAD_INSTRUCTION_UNKNOWN_INST,
            ),
            (
                vec![0, 6, 0, 16, 0, 0, 0, 1],
                ErrorCode::BAD_INSTRUCTION_BAD_LEN,
            ),
        ] {
            assert_eq!(decoded(&bytes).unwrap_err().error, error, "{bytes:?}");
        }
    }
}
