//! Certificates and their keys, and the configuration of handshakes.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    client::verify_server_name,
    crypto::{aws_lc_rs, CryptoProvider},
    pki_types::{pem::PemObject, CertificateDer, PrivateKeyDer, ServerName},
    server::{ClientHello, ParsedCertificate, ResolvesServerCert},
    sign::CertifiedKey,
    ServerConfig, SignatureScheme,
};

use crate::signer::RemoteKey;

/// The place of a private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// A PEM file.
    File(PathBuf),
    /// The socket of a signer on this machine, or forwarded to it.
    Signer(PathBuf),
}

/// A certificate chain in a PEM file, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: Key,
}

/// An identity that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its index.
    pub identity: usize,
    /// `certificate`, `key` or `signer`.
    pub field: &'static str,
    pub reason: String,
}

/// Builds the configuration of handshakes with these identities: TLS 1.2 and 1.3, ephemeral keys and AEADs only, and HTTP/1.1 as the only protocol. The first
/// identity serves clients that name no server, or one of none.
///
/// # Errors
/// The first identity that cannot be used.
pub fn server_config(identities: &[Identity]) -> Result<ServerConfig, Problem> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let keys: Result<Vec<_>, _> = identities
        .iter()
        .enumerate()
        .map(|(index, identity)| {
            let problem = |(field, reason)| Problem {
                identity: index,
                field,
                reason,
            };
            identity.load(&provider).map_err(problem)
        })
        .collect();
    let keys = keys?;
    let unusable = |error: rustls::Error| Problem {
        identity: 0,
        field: "certificate",
        reason: error.to_string(),
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(unusable)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Identities(keys)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(unusable)?;
    Ok(config)
}

impl Identity {
    fn load(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, (&'static str, String)> {
        let chain = certificates(&self.certificate).map_err(|reason| ("certificate", reason))?;
        let file = self.certificate.display();
        let first = ParsedCertificate::try_from(&chain[0]);
        let public = first
            .map_err(|error| ("certificate", format!("{file}: {error}")))?
            .subject_public_key_info();
        match &self.key {
            Key::File(path) => {
                let key = private_key(path).map_err(|reason| ("key", reason))?;
                let certified = CertifiedKey::from_der(chain, key, provider).map_err(|error| {
                    let reason = format!("{}: does not fit {file}: {error}", path.display());
                    ("key", reason)
                })?;
                Ok(Arc::new(certified))
            }
            Key::Signer(socket) => {
                let key = RemoteKey::new(socket.clone(), &public).ok_or_else(|| {
                    let reason = format!(
                        "{file}: its key is neither RSA, ECDSA with P-256 or P-384, nor Ed25519"
                    );
                    ("certificate", reason)
                })?;
                Ok(Arc::new(CertifiedKey::new(chain, Arc::new(key))))
            }
        }
    }
}

/// Reads the only private key of a PEM file.
///
/// # Errors
/// The reason with the file's name.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(&read(path)?)
        .map_err(|error| format!("{}: no private key in PEM: {error}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(format!("{}: no certificate in PEM", path.display())),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: cannot be read: {error}", path.display()))
}

#[derive(Debug)]
struct Identities(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for Identities {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let can_sign = |key: &&Arc<CertifiedKey>| signs(key, hello.signature_schemes());
        let name = hello
            .server_name()
            .and_then(|name| ServerName::try_from(name).ok());
        let named = name.and_then(|name| {
            let mut fitting = self.0.iter().filter(|key| is_for(key, &name));
            fitting.find(can_sign)
        });
        // Without a scheme in common, rustls refuses the client with the alert for that.
        let any = || self.0.iter().find(can_sign).or_else(|| self.0.first());
        named.or_else(any).cloned()
    }
}

fn signs(key: &CertifiedKey, schemes: &[SignatureScheme]) -> bool {
    key.key.choose_scheme(schemes).is_some()
}

fn is_for(key: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let certificate = key.cert.first().map(ParsedCertificate::try_from);
    matches!(certificate, Some(Ok(certificate)) if verify_server_name(&certificate, name).is_ok())
}
