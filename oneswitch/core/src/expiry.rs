//! The end of rules: removed ones, whose copies report, and those whose idle timeout runs here.

pub mod early;
pub mod idle;
pub mod removed;

use idle::IdleWatch;
use removed::Removals;

#[derive(Debug, Default)]
pub struct Expiry {
    pub removals: Removals,
    pub idle: IdleWatch,
}
