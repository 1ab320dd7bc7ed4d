//! TLS of a server that owns no socket, in two parts.
//!
//! [`Handshakes`] runs handshakes with rustls in threads of their own, so that neither a key operation nor a [`signer`] holds up packets. Its result is a
//! [`Session`]: the record layer after the handshake, whose keys, nonces and sequence numbers are plain data that can move to another process.

mod alert;
mod handshake;
mod identity;
mod keys;
mod record;
mod session;
pub mod signer;
mod threads;

pub use alert::Alert;
pub use handshake::{Established, Handshake, Progress};
pub use identity::{server_config, Identity, Key, Problem};
pub use record::{Header, MAX_RECORD};
pub use rustls::ServerConfig;
pub use session::{Received, Session};
pub use threads::{Handshakes, Outcome};
