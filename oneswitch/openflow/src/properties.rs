//! Lists of properties of OpenFlow 1.4, which Nicira's extensions have in earlier
//! versions, too (lib/ofp-prop.c).

use crate::error::{ErrorCode, Refusal};
use crate::wire::{padded, u16_at, u32_at};

/// Bytes of `ofp_prop_header`.
const HEADER: usize = 4;
/// Bytes of the header of an experimenter's property (`ofp_prop_experimenter`).
const EXPERIMENTER_HEADER: usize = 12;
/// The type of experimenters' properties.
pub(crate) const EXPERIMENTER: u16 = 0xffff;

/// The properties of a list, each with its type and content (`ofpprop_pull`); it
/// ends after one that is malformed.
pub(crate) struct Properties<'a> {
    list: &'a [u8],
    /// The first type that is an experimenter's.
    experimenters: u16,
}

impl<'a> Properties<'a> {
    pub(crate) fn new(list: &'a [u8]) -> Self {
        Self::with_experimenters(list, EXPERIMENTER)
    }

    /// Reads properties of which more types than one are experimenters'.
    pub(crate) fn with_experimenters(list: &'a [u8], experimenters: u16) -> Self {
        Self {
            list,
            experimenters,
        }
    }

    /// Returns the bytes behind the properties so far.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.list
    }
}

impl<'a> Iterator for Properties<'a> {
    type Item = Result<(u16, &'a [u8]), Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        let all = std::mem::take(&mut self.list);
        if all.is_empty() {
            return None;
        }
        let kind = u16_at(all, 0).unwrap_or_default();
        let length = u16_at(all, 2).map_or(0, usize::from);
        let (content, rest) = (all.get(HEADER..length), all.get(padded(length)..));
        let (Some(content), Some(rest)) = (content, rest) else {
            return Some(Err(bad_length(kind, length)));
        };
        if kind >= self.experimenters {
            if length < EXPERIMENTER_HEADER {
                return Some(Err(bad_length(kind, length)));
            }
            if u32_at(content, 0) == Some(0) {
                let detail = format!("property {kind} of experimenter 0");
                let error = ErrorCode::ONF_PROPERTY_BAD_EXPERIMENTER;
                return Some(Err(Refusal::new(error, detail)));
            }
        }
        self.list = rest;
        Some(Ok((kind, content)))
    }
}

/// Creates the error for a property whose content has another length.
pub(crate) fn bad_content(kind: u16, content: &[u8]) -> Refusal {
    bad_length(kind, HEADER + content.len())
}

/// Creates Open vSwitch's OFPBPC_BAD_TYPE, by its number in OpenFlow 1.3.
pub(crate) fn unknown(kind: u16) -> Refusal {
    let error = match kind {
        EXPERIMENTER => ErrorCode::ONF_PROPERTY_BAD_EXP_TYPE,
        _ => ErrorCode::TABLE_FEATURES_FAILED_BAD_TYPE,
    };
    Refusal::new(error, format!("unknown property {kind}"))
}

/// Creates Open vSwitch's OFPBPC_BAD_LEN, by its number in OpenFlow 1.3.
fn bad_length(kind: u16, length: usize) -> Refusal {
    let detail = format!("property {kind} of {length} bytes");
    Refusal::new(ErrorCode::TABLE_FEATURES_FAILED_BAD_LEN, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experimenters_have_a_number() {
        let short = [0xff, 0xff, 0, 8, 0, 0, 0, 1];
        let unknown = [0xff, 0xff, 0, 12, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        for (list, error) in [
            (&short[..], ErrorCode::TABLE_FEATURES_FAILED_BAD_LEN),
            (&unknown, ErrorCode::ONF_PROPERTY_BAD_EXPERIMENTER),
        ] {
            let refused = Properties::new(list).next().unwrap().unwrap_err();
            assert_eq!(refused.error, error);
            let mut others = list.to_vec();
            others[1] = 0xfe;
            assert!(Properties::new(&others).next().unwrap().is_ok());
            let mut among_more = Properties::with_experimenters(&others, 0xfffe);
            assert_eq!(among_more.next().unwrap().unwrap_err().error, error);
        }
    }

    #[test]
    fn a_wrong_length_ends_a_list() {
        let good = [0, 5, 0, 5, 9, 0, 0, 0];
        for wrong in [
            &[0, 6, 0, 3, 1, 1, 1, 1][..],
            &[0, 6, 0, 9, 1, 1, 1, 1],
            &[0, 6],
        ] {
            let list = [&good, wrong, &good].concat();
            let list = &list[..good.len() + wrong.len()];
            let mut properties = Properties::new(list);
            assert_eq!(properties.next(), Some(Ok((5, &[9][..]))));
            assert_eq!(properties.rest(), wrong);
            let refused = properties.next().unwrap().unwrap_err();
            assert_eq!(refused.error, ErrorCode::TABLE_FEATURES_FAILED_BAD_LEN);
            assert_eq!(properties.next(), None);
        }
    }
}
