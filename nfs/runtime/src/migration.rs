//! How a running instance gives its work to another: `nfs/README.md`, "Migration".

mod ring;
mod wire;

pub use ring::{Record, Ring, RingFull};
