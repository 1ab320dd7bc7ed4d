//! The certificates of a listener, as written.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The certificates of a listener: a first one, which also serves names that none of the others has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    pub certificate: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    /// Further certificates. The name that a client asks for chooses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<Certificate>,
}

/// A certificate chain with the place of its key: a file or a signer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// A PEM file, the server's own certificate first.
    pub certificate: PathBuf,
    /// A PEM file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// `unix:` and the path of the socket of `nf signer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
}
