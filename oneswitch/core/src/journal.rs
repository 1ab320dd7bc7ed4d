pub mod bridges;
pub mod moves;
pub mod port_counters;
pub mod records;
pub mod restore;
