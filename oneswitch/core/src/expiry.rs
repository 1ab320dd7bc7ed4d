pub mod idle;
pub mod removed;
