pub mod executors;
pub mod flood;
pub mod ports;
pub mod quarantine;
