//! The signatures: files of Debian's package `prads`, read as they are.

mod dhcp;
mod fault;
mod links;
mod pattern;
mod services;
mod tcp;
mod vendors;

use std::path::Path;

use nf_runtime::Refusal;
use xxhash_rust::xxh3::Xxh3;

pub use dhcp::{DhcpSignatures, Message};
pub use fault::Fault;
pub use links::Links;
pub use services::ServiceSignatures;
pub use tcp::{option, quirk, Fingerprint, System, TcpSignatures, MAX_OPTIONS};
pub use vendors::Vendors;

/// All signatures.
pub struct Signatures {
    pub syn: TcpSignatures,
    pub syn_ack: TcpSignatures,
    pub ack: TcpSignatures,
    pub fin: TcpSignatures,
    pub rst: TcpSignatures,
    pub servers: ServiceSignatures,
    pub clients: ServiceSignatures,
    pub datagrams: ServiceSignatures,
    pub vendors: Vendors,
    pub dhcp: DhcpSignatures,
    pub links: Links,
    digest: u128,
}

/// Reads files of one directory, and computes their digest.
struct Files<'a> {
    directory: &'a Path,
    digest: Xxh3,
}

impl Files<'_> {
    fn read<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&[u8]) -> Result<T, Fault>,
    ) -> Result<T, Refusal> {
        let path = self.directory.join(name);
        let refuse = |reason: String| {
            Refusal::configuration("signatures", format!("{}: {reason}", path.display()))
        };
        let text = std::fs::read(&path).map_err(|error| {
            refuse(format!(
                "cannot be read: {error}; expected the directory with the files of Debian's package prads, such as /etc/prads"
            ))
        })?;
        self.digest.update(&(text.len() as u64).to_le_bytes());
        self.digest.update(&text);
        parse(&text).map_err(|fault| refuse(fault.to_string()))
    }
}

impl Signatures {
    /// Reads the files of a directory.
    ///
    /// # Errors
    /// If a file cannot be read, or has a line that is not a signature; the error names both.
    pub fn load(directory: &Path) -> Result<Self, Refusal> {
        let mut files = Files {
            directory,
            digest: Xxh3::new(),
        };
        Ok(Self {
            syn: files.read("tcp-syn.fp", TcpSignatures::parse)?,
            syn_ack: files.read("tcp-synack.fp", TcpSignatures::parse)?,
            ack: files.read("tcp-stray-ack.fp", TcpSignatures::parse)?,
            fin: files.read("tcp-fin.fp", TcpSignatures::parse)?,
            rst: files.read("tcp-rst.fp", TcpSignatures::parse)?,
            servers: files.read("tcp-service.sig", ServiceSignatures::parse)?,
            clients: files.read("tcp-clients.sig", ServiceSignatures::parse)?,
            datagrams: files.read("udp-service.sig", ServiceSignatures::parse)?,
            vendors: files.read("mac.sig", Vendors::parse)?,
            dhcp: files.read("dhcp.fp", DhcpSignatures::parse)?,
            links: files.read("mtu.sig", Links::parse)?,
            digest: files.digest.digest128(),
        })
    }

    /// Returns a digest of all files. State names signatures by their numbers, which mean the same only where the files are the same.
    #[must_use]
    pub fn digest(&self) -> u128 {
        self.digest
    }
}
