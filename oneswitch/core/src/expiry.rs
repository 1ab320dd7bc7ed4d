//! Rules that end: removed ones, whose copies report, and those whose idle timeout is ours.

pub mod idle;
pub mod removed;

use idle::IdleWatch;
use removed::Removals;

#[derive(Debug, Default)]
pub struct Expiry {
    pub removals: Removals,
    pub idle: IdleWatch,
}
