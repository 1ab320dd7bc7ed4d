pub mod facts;
pub mod hidden;
pub mod in_flight;
pub mod lookups;
pub mod rule;
pub mod rule_set;
pub mod tables;
pub mod truth;
