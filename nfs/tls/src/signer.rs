//! The signer: a process that holds a private key and signs handshakes with it, so that the key stays on the host while the function runs on a smart NIC
//! (LB-NIC's flipped model).
//!
//! A request is a version, a signature scheme, a length and the message; a reply is a status, a length, and the signature or the reason of a refusal.
//! Both come in turn on a stream.

mod message;
mod remote;
mod server;

pub use remote::RemoteKey;
pub use server::Signer;

/// The version of the protocol.
const VERSION: u8 = 1;
/// The most bytes of a message to sign: random numbers and an ephemeral key.
const MAX_MESSAGE: usize = 512;
/// The most bytes of a signature or a reason: RSA keys have at most 8192 bits.
const MAX_REPLY: usize = 1024;

const SIGNED: u8 = 0;
const REFUSED: u8 = 1;
