//! Numbers of errors in OpenFlow 1.0 (include/openvswitch/ofp-errors.h).

use crate::error::ErrorCode;
use crate::wire::Put;
use crate::NX_VENDOR;

/// `NXET_VENDOR`: Nicira's type and code follow.
const VENDOR_TYPE: u16 = 0xb0c2;
/// `NXVC_VENDOR_ERROR`.
const VENDOR_CODE: u16 = 0;

/// An error's type and code, and whether they are Nicira's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Code10 {
    kind: u16,
    code: u16,
    is_nicira: bool,
}

const fn standard(kind: u16, code: u16) -> Code10 {
    Code10 {
        kind,
        code,
        is_nicira: false,
    }
}

const fn nicira(kind: u16, code: u16) -> Code10 {
    Code10 {
        kind,
        code,
        is_nicira: true,
    }
}

/// Returns the numbers of an error in OpenFlow 1.0; those that it cannot name
/// become `NXBRC_UNENCODABLE_ERROR`.
fn error_of(error: ErrorCode) -> Code10 {
    match (error.kind, error.code) {
        (0, 0..=1) | (1, 0..=8) | (2, 0..=8) => standard(error.kind, error.code),
        (1, 9) => nicira(1, 512),
        (1, 10) => standard(1, 5),
        (1, 11) => nicira(1, 514),
        (2, 9) => nicira(2, 9),
        (2, 10) => nicira(1, 522),
        (2, code @ 13..=15) => nicira(1, code + 510),
        (3, 1) => nicira(2, 257),
        (4, 5) => nicira(1, 262),
        (4, 6) => nicira(0, 263),
        (4, code @ 7..=10) => nicira(1, code + 251),
        (5, 1) => standard(3, 0),
        (5, 3) => standard(3, 1),
        (5, 4) => standard(3, 2),
        (5, 6) => standard(3, 4),
        (5, 7) => nicira(3, 258),
        (6, 0..=16) => nicira(error.kind, error.code),
        (7, code @ 0..=1) => standard(4, code),
        (9, code @ 0..=2) => standard(5, code),
        (11, 2) => nicira(1, 513),
        (13, 2..=4) => nicira(13, error.code),
        (0xffff, code @ 2..=3) => nicira(1, code + 254),
        (0xffff, code @ 4..=10) => nicira(1, code + 511),
        (0xffff, 11) => nicira(2, 256),
        (0xffff, code @ 12..=13) => nicira(5, code + 244),
        (0xffff, 15) => nicira(2, 526),
        (0xffff, code @ 16..=21) => nicira(1, code + 511),
        (0xffff, code @ 34..=38) => nicira(1, code + 499),
        (0xffff, 42) => nicira(1, 265),
        (0xffff, 43) => nicira(1, 264),
        (0xffff, code @ 4443..=4448) => nicira(14, code - 4440),
        _ => nicira(1, 521),
    }
}

/// Writes an error's numbers (`ofperr_encode_msg__`).
pub(crate) fn put_error(error: ErrorCode, out: &mut Vec<u8>) {
    let found = error_of(error);
    if found.is_nicira {
        out.put_u16(VENDOR_TYPE);
        out.put_u16(VENDOR_CODE);
        out.put_u32(NX_VENDOR);
    }
    out.put_u16(found.kind);
    out.put_u16(found.code);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_numbers_of_open_vswitch() {
        for (error, expected) in [
            (ErrorCode::BAD_REQUEST_IS_SLAVE, standard(1, 5)),
            (ErrorCode::BAD_ACTION_MATCH_INCONSISTENT, nicira(1, 522)),
            (ErrorCode::BAD_ACTION_BAD_SET_ARGUMENT, nicira(1, 525)),
            (ErrorCode::BAD_MATCH_BAD_VALUE, nicira(1, 258)),
            (ErrorCode::BAD_MATCH_DUP_FIELD, nicira(1, 261)),
            (ErrorCode::FLOW_MOD_FAILED_OVERLAP, standard(3, 1)),
            (ErrorCode::FLOW_MOD_FAILED_TABLE_FULL, standard(3, 0)),
            (ErrorCode::QUEUE_OP_FAILED_BAD_PORT, standard(5, 0)),
            (ErrorCode::ROLE_REQUEST_FAILED_BAD_ROLE, nicira(1, 513)),
            (ErrorCode::TABLE_FEATURES_FAILED_BAD_LEN, nicira(13, 3)),
            (ErrorCode::ONF_PROPERTY_DUP_TYPE, nicira(14, 4)),
            (ErrorCode::NX_NXM_BAD_TYPE, nicira(1, 257)),
            (ErrorCode::NX_MUST_BE_ZERO, nicira(1, 515)),
            (ErrorCode::NX_ACTION_MUST_BE_ZERO, nicira(2, 256)),
            (ErrorCode::NX_TLV_DUP_ENTRY, nicira(1, 532)),
            (ErrorCode::NX_RESUME_NOT_SUPPORTED, nicira(1, 533)),
            (ErrorCode::NX_STATS_NOT_CONFIGURED, nicira(1, 535)),
            (ErrorCode::NX_UNENCODABLE_ERROR, nicira(1, 521)),
            (ErrorCode::BAD_ACTION_BAD_OUT_GROUP, nicira(2, 9)),
            (ErrorCode::GROUP_MOD_FAILED_LOOP, nicira(6, 7)),
            (ErrorCode::GROUP_MOD_FAILED_BUCKET_EXISTS, nicira(6, 16)),
            (ErrorCode::NX_TLV_INVALID_DEL, nicira(1, 537)),
            (ErrorCode::NX_ACTION_CT_DATAPATH_SUPPORT, nicira(1, 265)),
            (ErrorCode::NX_MATCH_CT_DATAPATH_SUPPORT, nicira(1, 264)),
            (ErrorCode::NX_BAD_HEADER_TYPE, nicira(1, 521)),
        ] {
            assert_eq!(error_of(error), expected, "{error}");
        }
    }
}
