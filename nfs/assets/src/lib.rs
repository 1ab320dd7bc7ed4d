//! Passive asset detection: hosts, their operating systems, services and clients, known from packets that pass.
//!
//! It reads the signature files of Debian's package `prads` and finds what PRADS 0.3.3 finds: the lines of both are equal, with the differences that
//! docs/assets.md names.

mod checks;
mod config;
mod connections;
mod fingerprint;
mod function;
mod history;
mod inspect;
mod inspector;
mod lines;
mod links;
mod look;
mod octets;
mod ports;
mod register;
mod report;
mod signatures;
mod view;

pub use checks::{Check, Checks};
pub use config::Config;
pub use connections::Connections;
pub use function::Assets;
pub use inspector::Inspector;
pub use register::{Capacity, Register};
pub use signatures::{
    DhcpSignatures, Links, ServiceSignatures, Signatures, TcpSignatures, Vendors,
};
pub use view::Captured;
