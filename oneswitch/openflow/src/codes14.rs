//! Numbers of errors from OpenFlow 1.4 on, where many of the Open Networking
//! Foundation's extensions became standard (include/openvswitch/ofp-errors.h).

use crate::error::{ErrorCode, EXPERIMENTER_ERROR};

/// Returns the type and code of an error of OpenFlow 1.3.
pub(crate) fn error_14(error: ErrorCode) -> ErrorCode {
    let standard = |kind, code| ErrorCode { kind, code };
    match (error.kind, error.code) {
        // Before OpenFlow 1.4, Open vSwitch refuses properties by the errors of those of table features.
        (13, code @ 2..=4) => standard(14, code - 2),
        (EXPERIMENTER_ERROR, code) => match code {
            6 => standard(16, 1),
            7 => standard(16, 5),
            8 => standard(16, 3),
            2300..=2315 => standard(17, code - 2300),
            2360 => standard(5, 9),
            2370..=2372 => standard(15, code - 2370),
            2600 => standard(3, 9),
            2640..=2641 => standard(1, code - 2626),
            4443..=4448 => standard(14, code - 4440),
            _ => error,
        },
        _ => error,
    }
}

/// Returns the type and code of an error of OpenFlow 1.5 in 1.3, which lacks some.
pub(crate) fn error_13(error: ErrorCode) -> ErrorCode {
    match (error.kind, error.code) {
        (1, 17) | (6, 15..) => ErrorCode::NX_UNENCODABLE_ERROR,
        _ => error,
    }
}

/// Does the same as [`error_14`] for OpenFlow 1.5.
pub(crate) fn error_15(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::ONF_BAD_SET_MASK => ErrorCode { kind: 2, code: 16 },
        error => error_14(error),
    }
}

/// Reverses [`error_15`].
pub(crate) fn error_of_15(error: ErrorCode) -> ErrorCode {
    let extension = |code| ErrorCode {
        kind: EXPERIMENTER_ERROR,
        code,
    };
    match (error.kind, error.code) {
        (1, code @ 14..=15) => extension(2626 + code),
        (2, 16) => ErrorCode::ONF_BAD_SET_MASK,
        (3, 9) => extension(2600),
        (5, 9) => extension(2360),
        (14, code @ 0..=2) => ErrorCode {
            kind: 13,
            code: code + 2,
        },
        (14, code @ 3..=8) => extension(4440 + code),
        (15, code @ 0..=2) => extension(2370 + code),
        (16, 1) => extension(6),
        (16, 3) => extension(8),
        (16, 5) => extension(7),
        (17, code @ 0..=15) => extension(2300 + code),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_openflow_15_are_unencodable_before() {
        let error = ErrorCode::GROUP_MOD_FAILED_BUCKET_EXISTS;
        assert_eq!(error_15(error), error);
        assert_eq!(error_13(error), ErrorCode::NX_UNENCODABLE_ERROR);
        let standard = error_15(ErrorCode::ONF_BAD_SET_MASK);
        assert_eq!((standard.kind, standard.code), (2, 16));
        let shared = error_15(ErrorCode::ONF_DUP_INST);
        assert_eq!((shared.kind, shared.code), (3, 9));
    }

    #[test]
    fn errors_have_the_numbers_of_open_vswitch() {
        for (error, expected) in [
            (ErrorCode::BAD_REQUEST_BAD_TYPE, (1, 1)),
            (ErrorCode::TABLE_FEATURES_FAILED_BAD_TABLE, (13, 0)),
            (ErrorCode::TABLE_FEATURES_FAILED_BAD_LEN, (14, 1)),
            (ErrorCode::ONF_PROPERTY_TOO_MANY, (14, 3)),
            (ErrorCode::ONF_PROPERTY_EPERM, (14, 8)),
            (ErrorCode::ONF_ASYNC_EPERM, (15, 2)),
            (ErrorCode::NX_MONITOR_BAD_FLAGS, (16, 5)),
            (ErrorCode::ONF_BUNDLE_IN_PROGRESS, (17, 15)),
            (ErrorCode::ONF_DUP_INST, (3, 9)),
            (ErrorCode::ONF_MULTIPART_REPLY_TIMEOUT, (1, 15)),
            (ErrorCode::ONF_BAD_PRIORITY, (5, 9)),
            (ErrorCode::NX_MUST_BE_ZERO, (0xffff, 4)),
            (ErrorCode::ONF_BAD_SET_MASK, (0xffff, 4250)),
        ] {
            let found = error_14(error);
            assert_eq!((found.kind, found.code), expected, "{error}");
        }
    }
}
