//! The checks of Open vSwitch 3.1 when it decodes a `load` (`decode_NXAST_RAW_REG_LOAD`, lib/ofp-actions.c), for lists that
//! switches get in a form that lacks this action.

use crate::action::{nicira_action::REG_LOAD, Action, ActionItem, Actions};
use crate::error::{ErrorCode, Refusal};
use crate::field::{lookup, Field, Kind};
use crate::wire::Reader;

/// Bits of the largest tunnel option.
const TUNNEL_OPTION_BITS: usize = 992;
/// Bits of an ARP opcode, of which packets have eight, and of the state that `ct` sets, of which eight mean something.
const ARP_OP_BITS: usize = 16;
const CT_STATE_BITS: usize = 32;

/// Checks each `load` of a list whose lengths are right, also inside other actions.
pub(crate) fn check(list: Actions<'_>) -> Result<(), Refusal> {
    list.iter().try_for_each(|item| check_item(&item))
}

fn check_item(item: &ActionItem<'_>) -> Result<(), Refusal> {
    match (item.nested(), item.action) {
        (Some(nested), _) => check(nested),
        (
            None,
            Action::Nicira {
                subtype: REG_LOAD,
                body,
            },
        ) => check_load(body),
        _ => Ok(()),
    }
}

/// Checks what follows the subtype. The range comes before the rest (`mf_check_dst`).
fn check_load(body: &[u8]) -> Result<(), Refusal> {
    let mut reader = Reader::new(body);
    let numbers = usize::from(reader.u16()?);
    let class = reader.u16()?;
    let [number, length] = reader.array()?;
    let value = reader.u64()?;
    let (offset, count) = (numbers >> 6, (numbers & 0x3f) + 1);
    let refuse = |error| {
        let detail = format!(
            "load of {value:#x} into {count} bits from {offset} of field {class:#06x} {number:#x}"
        );
        Err(Refusal::new(error, detail))
    };
    let has_mask = number & 1 != 0;
    let width = if has_mask { length / 2 } else { length };
    let known = lookup(class, number >> 1, None)
        .filter(|known| known.kind == Kind::TunMetadata || known.width == width);
    let Some(known) = known else {
        return refuse(ErrorCode::BAD_ACTION_BAD_SET_TYPE);
    };
    if offset + count > bits(&known) {
        return refuse(ErrorCode::BAD_ACTION_BAD_SET_LEN);
    }
    if !known.writable {
        return refuse(ErrorCode::BAD_ACTION_BAD_SET_ARGUMENT);
    }
    match count < 64 && value >> count != 0 {
        true => refuse(ErrorCode::BAD_ACTION_BAD_ARGUMENT),
        false => Ok(()),
    }
}

fn bits(field: &Field) -> usize {
    match field.kind {
        Kind::TunMetadata => TUNNEL_OPTION_BITS,
        Kind::ArpOp => ARP_OP_BITS,
        Kind::CtState => CT_STATE_BITS,
        _ => field.bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Put;

    fn load(offset: u16, count: u16, header: u32, value: u64) -> Vec<u8> {
        let mut raw = vec![0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20, 0, 7];
        raw.put_u16(offset << 6 | (count - 1));
        raw.put_u32(header);
        raw.put_u64(value);
        raw
    }

    fn error_of(raw: &[u8]) -> Option<ErrorCode> {
        let refusal = check(Actions::trusted(raw, 0)).err();
        refusal.map(|refusal| refusal.error)
    }

    #[test]
    fn each_fault_gets_the_error_of_open_vswitch() {
        const REG0: u32 = 0x0001_0004;
        const ETH_TYPE: u32 = 0x0000_0602;
        let unknown = Some(ErrorCode::BAD_ACTION_BAD_SET_TYPE);
        let length = Some(ErrorCode::BAD_ACTION_BAD_SET_LEN);
        let read_only = Some(ErrorCode::BAD_ACTION_BAD_SET_ARGUMENT);
        let value = Some(ErrorCode::BAD_ACTION_BAD_ARGUMENT);
        for (raw, expected) in [
            (load(0, 32, REG0, 0xffff_ffff), None),
            (load(31, 1, REG0, 1), None),
            (load(31, 2, REG0, 1), length),
            (load(0, 64, REG0, 1), length),
            (load(0, 8, REG0, 256), value),
            (load(0, 8, 0x0001_0108, 1), None),
            (load(0, 1, 0x0001_0104, 1), unknown),
            (load(0, 1, 0x0001_0002, 1), unknown),
            (load(0, 1, 0x0007_0604, 1), unknown),
            (load(0, 1, 0xffff_5608, 1), unknown),
            (load(0, 16, ETH_TYPE, 1), read_only),
            (load(0, 1, ETH_TYPE, 2), read_only),
            (load(0, 17, ETH_TYPE, 1), length),
            (load(8, 8, 0x0000_1e02, 1), None),
            (load(31, 1, 0x0001_d204, 1), read_only),
            (load(991, 1, 0x0001_5004, 1), None),
            (load(992, 1, 0x0001_5004, 1), length),
        ] {
            assert_eq!(error_of(&raw), expected, "{raw:02x?}");
        }
    }

    #[test]
    fn loads_inside_other_actions_are_checked() {
        let inside = load(31, 2, 0x0001_0004, 1);
        let mut clone = vec![0xff, 0xff, 0, 40, 0, 0, 0x23, 0x20, 0, 42, 0, 0, 0, 0, 0, 0];
        clone.extend(&inside);
        assert_eq!(error_of(&clone), error_of(&inside));
        assert!(error_of(&clone).is_some());
    }
}
