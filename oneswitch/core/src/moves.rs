//! Moves of virtual ports and of their executors, and the copies of rules, groups and meters that follow them.

pub mod copies;
pub mod requests;
pub mod resume;
pub mod stages;

use crate::api::PortError;
use crate::switches::fold::Fold;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Moves {
    outcomes: BTreeMap<u32, Result<(), PortError>>,
    /// Statistics that are in, per moving port. They count when all are in, with the end of the move, or a restart in between would count
    /// them again.
    folds: BTreeMap<u32, Vec<Fold>>,
    /// A move has ended: its port may look different to controllers.
    pub ended: bool,
    /// Rules have got several copies, whose idle timeouts are watched here.
    pub timers_move: bool,
}
