//! Reports to flow monitors: those of OpenFlow 1.4, with the matches and actions of
//! 1.5.

use crate::flow_monitor::{self, Update, UpdateMessages};
use crate::instruction::Instructions;

use super::fields::matching;
use super::{instructions, VERSION};

/// Encodes a report for a peer of any version; see
/// [`flow_monitor::updates_messages`].
pub fn updates_messages(version: u8, xid: u32, mut updates: Vec<Update>) -> UpdateMessages {
    if version >= VERSION {
        updates.iter_mut().for_each(translate);
    }
    flow_monitor::updates_messages(version, xid, updates)
}

fn translate(update: &mut Update) {
    if let Update::Full(update) = update {
        update.matching = matching(&update.matching);
        update.instructions = Instructions::trusted(instructions::to_15(&update.instructions));
    }
}
