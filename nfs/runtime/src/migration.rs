//! How a running instance gives its work to another: `nfs/README.md`, "Migration".

mod ring;

pub use ring::{Record, Ring, RingFull};
