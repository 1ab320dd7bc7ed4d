//! The handling of state that all ports share: `stateful`, `gather_at` and `meters` of `[oneswitchd]`.

use oneswitch_core::SharedState;

use super::ports::check_switch;
use super::reader::{parse_one, Document, Section};

/// Reads the three keys. `names`: those of the switches, where known.
pub fn read_shared_state(
    document: &Document<'_>,
    own: &Section<'_>,
    names: &[Option<String>],
) -> Option<SharedState> {
    let choice = |key, [yes, no]: [&'static str; 2]| match own.string(key, "a string") {
        None => Some(None),
        Some(field) => parse_one(document, &field, |value| match value {
            _ if value == yes => Ok(Some(true)),
            _ if value == no => Ok(Some(false)),
            _ => Err(format!("is \"{value}\"; expected \"{yes}\" or \"{no}\"")),
        }),
    };
    let gathers = choice("stateful", ["gather", "refuse"])?.unwrap_or(true);
    let meters = choice("meters", ["gather", "per-executor"])?.unwrap_or(false);
    let at = own.string("gather_at", "the name of a [[switch]]");
    if let Some(field) = &at {
        check_switch(document, field, names);
    }
    if gathers {
        let at = at.map(|field| field.value);
        return Some(SharedState::Gather { at, meters });
    }
    for (key, is_given) in [("gather_at", at.is_some()), ("meters", meters)] {
        if let Some(field) = own.string(key, "a string").filter(|_| is_given) {
            document.blame(&field, "needs stateful = \"gather\"");
        }
    }
    Some(SharedState::Refuse)
}
