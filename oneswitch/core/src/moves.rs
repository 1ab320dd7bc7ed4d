pub mod copies;
pub mod requests;
pub mod resume;
pub mod stages;
