pub mod controller;
pub mod merge;
pub mod merge_flows;
pub mod reply;
pub mod settings;
pub mod sources;
