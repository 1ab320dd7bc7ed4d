pub mod management;
pub mod northbound;
pub mod southbound;
pub mod writes;
