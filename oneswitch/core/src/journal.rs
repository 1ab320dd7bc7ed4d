pub mod moves;
pub mod records;
pub mod restore;
