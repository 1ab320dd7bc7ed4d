//! The check of a listener's certificates, and what handshakes need.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use nf_balancing::config::wrong;
use nf_runtime::Refusal;
use nf_tls::{Identity, Key, Problem, ServerConfig};

use super::config::{Certificate, Tls};
use crate::config::Listener;

/// The scheme of a signer's address.
const UNIX: &str = "unix:";

/// Returns where a certificate and its key are.
fn identity(written: &Certificate) -> Result<Identity, (&'static str, String)> {
    let key = match (&written.key, &written.signer) {
        (Some(key), None) => Key::File(key.clone()),
        (None, Some(signer)) => match signer.strip_prefix(UNIX) {
            Some(path) if !path.is_empty() => Key::Signer(path.into()),
            _ => {
                let reason = format!("is {signer:?}; expected unix: and the path of a socket");
                return Err(("signer", reason));
            }
        },
        _ => {
            let reason = "expected either `key` or `signer` for this certificate";
            return Err(("key", reason.to_owned()));
        }
    };
    Ok(Identity {
        certificate: written.certificate.clone(),
        key,
    })
}

/// Checks the form of a listener's certificates, and reads no file.
///
/// # Errors
/// The first fault, with the path of its value.
pub fn check(path: &str, tls: &Tls) -> Result<(), Refusal> {
    identities(path, tls).map(drop)
}

fn identities(path: &str, tls: &Tls) -> Result<Vec<Identity>, Refusal> {
    let first = Certificate {
        certificate: tls.certificate.clone(),
        key: tls.key.clone(),
        signer: tls.signer.clone(),
    };
    let all = std::iter::once(&first).chain(&tls.certificates);
    all.enumerate()
        .map(|(index, certificate)| {
            identity(certificate)
                .or_else(|(field, reason)| wrong(&place(path, index, field), reason))
        })
        .collect()
}

/// Returns the path of a value of a listener's certificates.
fn place(path: &str, identity: usize, field: &str) -> String {
    match identity.checked_sub(1) {
        None => format!("{path}.{field}"),
        Some(index) => format!("{path}.certificates[{index}].{field}"),
    }
}

/// The settings of handshakes at listeners, by address and port.
pub type Handshakers = HashMap<(IpAddr, u16), Arc<ServerConfig>>;

/// Reads the certificates and keys of all listeners.
///
/// # Errors
/// The first that cannot be used.
pub fn prepare(listeners: &[Listener]) -> Result<Handshakers, Refusal> {
    let each = listeners.iter().enumerate();
    each.filter_map(|(index, listener)| {
        let tls = listener.tls.as_ref()?;
        let path = format!("listeners[{index}].tls");
        let end = (listener.address, listener.port);
        Some(load(&path, tls).map(|config| (end, Arc::new(config))))
    })
    .collect()
}

fn load(path: &str, tls: &Tls) -> Result<ServerConfig, Refusal> {
    nf_tls::server_config(&identities(path, tls)?).or_else(
        |Problem {
             identity,
             field,
             reason,
         }| wrong(&place(path, identity, field), reason),
    )
}
