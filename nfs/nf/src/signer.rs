//! `nf signer`: holds a private key, and signs the handshakes of functions elsewhere with it.

use std::path::{Path, PathBuf};

use nf_tls::signer::Signer;

use crate::failure::Failure;

/// The scheme of the address to listen at.
const UNIX: &str = "unix:";

/// Parses the address to listen at.
///
/// # Errors
/// If it is not `unix:` and a path.
pub(crate) fn address(text: &str) -> Result<PathBuf, String> {
    match text.strip_prefix(UNIX) {
        Some(path) if !path.is_empty() => Ok(path.into()),
        _ => Err("expected unix: and the path of a socket".to_owned()),
    }
}

/// Signs until the process is stopped.
///
/// # Errors
/// The file that cannot be used, and the reason.
pub(crate) fn run(key: &Path, socket: &Path) -> Result<(), Failure> {
    let signer = Signer::open(key, socket).map_err(Failure::new)?;
    eprintln!(
        "nf: signer with {} listens at unix:{}",
        key.display(),
        socket.display()
    );
    signer
        .run(|reason| eprintln!("nf: signer refused a request: {reason}"))
        .map_err(|error| Failure::new(format!("unix:{}: {error}", socket.display())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_address_is_the_path_of_a_socket() {
        assert_eq!(address("unix:/run/x").unwrap(), Path::new("/run/x"));
        for wrong in ["/run/x", "unix:", "tcp:1", ""] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
