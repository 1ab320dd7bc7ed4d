//! Moves of virtual ports and of their executors, and the copies of rules, groups and meters that follow them.

pub mod copies;
pub mod folding;
pub mod gather;
pub mod requests;
pub mod resume;
pub mod stages;
pub mod traffic;

use crate::api::PortError;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Moves {
    outcomes: BTreeMap<u32, Result<(), PortError>>,
    /// Received statistics, per moving port. They count once all are received, together with the end of the move, or a restart in between
    /// would count them twice.
    folds: BTreeMap<u32, folding::Folding>,
    pub gathering: gather::Gathering,
    pub traffic: traffic::Traffic,
    /// A move has ended: controllers may see its port differently.
    pub ended: bool,
    /// Rules have several copies now, whose idle timeouts are watched here.
    pub timers_move: bool,
}
