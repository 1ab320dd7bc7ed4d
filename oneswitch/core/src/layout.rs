pub mod compare;
pub mod edge;
pub mod findings;
pub mod messages;
pub mod repair;
pub mod spelling;
pub mod translate;
