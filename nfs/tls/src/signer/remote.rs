//! A private key whose signer is another process.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustls::{
    pki_types::{alg_id, AlgorithmIdentifier, SubjectPublicKeyInfoDer},
    sign::{Signer, SigningKey},
    Error, SignatureAlgorithm, SignatureScheme,
};

use super::{MAX_REPLY, SIGNED, VERSION};

/// The time that a signer has for an answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The connections that are kept for further signatures.
const IDLE: usize = 16;

/// Algorithms of public keys with their schemes, the preferred one first.
const KINDS: &[(AlgorithmIdentifier, SignatureAlgorithm, &[SignatureScheme])] = &[
    (
        alg_id::RSA_ENCRYPTION,
        SignatureAlgorithm::RSA,
        &[
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PKCS1_SHA512,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA256,
        ],
    ),
    (
        alg_id::ECDSA_P256,
        SignatureAlgorithm::ECDSA,
        &[SignatureScheme::ECDSA_NISTP256_SHA256],
    ),
    (
        alg_id::ECDSA_P384,
        SignatureAlgorithm::ECDSA,
        &[SignatureScheme::ECDSA_NISTP384_SHA384],
    ),
    (
        alg_id::ED25519,
        SignatureAlgorithm::ED25519,
        &[SignatureScheme::ED25519],
    ),
];

/// A key at a signer.
#[derive(Debug)]
pub struct RemoteKey {
    algorithm: SignatureAlgorithm,
    schemes: &'static [SignatureScheme],
    signer: Arc<Connections>,
}

impl RemoteKey {
    /// Names the key at a socket that belongs to a public key. None: its algorithm is unknown.
    #[must_use]
    pub fn new(socket: PathBuf, public: &SubjectPublicKeyInfoDer<'_>) -> Option<Self> {
        // The identifier follows the headers of two sequences.
        let starts = |id: &AlgorithmIdentifier| {
            let id: &[u8] = id.as_ref();
            public.as_ref().windows(id.len()).take(9).any(|at| at == id)
        };
        let (_, algorithm, schemes) = KINDS.iter().find(|(id, ..)| starts(id))?;
        Some(Self {
            algorithm: *algorithm,
            schemes,
            signer: Arc::new(Connections {
                socket,
                idle: Mutex::default(),
            }),
        })
    }
}

impl SigningKey for RemoteKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = *self
            .schemes
            .iter()
            .find(|scheme| offered.contains(scheme))?;
        Some(Box::new(RemoteSigner {
            scheme,
            signer: Arc::clone(&self.signer),
        }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.algorithm
    }
}

#[derive(Debug)]
struct RemoteSigner {
    scheme: SignatureScheme,
    signer: Arc<Connections>,
}

impl Signer for RemoteSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        self.signer
            .sign(self.scheme, message)
            .map_err(|reason| Error::General(format!("signer: {reason}")))
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

/// Connections to a signer that no thread uses.
#[derive(Debug)]
struct Connections {
    socket: PathBuf,
    idle: Mutex<Vec<UnixStream>>,
}

impl Connections {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, String> {
        let unreachable = |error: io::Error| format!("{}: {error}", self.socket.display());
        // The signer may have closed an idle connection: only a fresh one tells.
        while let Some(stream) = self.take() {
            if let Ok(reply) = self.ask(stream, scheme, message) {
                return reply;
            }
        }
        let stream = UnixStream::connect(&self.socket).map_err(unreachable)?;
        self.ask(stream, scheme, message).map_err(unreachable)?
    }

    fn ask(
        &self,
        mut stream: UnixStream,
        scheme: SignatureScheme,
        message: &[u8],
    ) -> io::Result<Result<Vec<u8>, String>> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut request = vec![VERSION];
        request.extend(u16::from(scheme).to_be_bytes());
        request.extend((message.len() as u16).to_be_bytes());
        request.extend(message);
        stream.write_all(&request)?;
        let mut head = [0; 3];
        stream.read_exact(&mut head)?;
        let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
        if length > MAX_REPLY {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let mut reply = vec![0; length];
        stream.read_exact(&mut reply)?;
        if head[0] != SIGNED {
            return Ok(Err(String::from_utf8_lossy(&reply).into_owned()));
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE {
            idle.push(stream);
        }
        Ok(Ok(reply))
    }

    fn take(&self) -> Option<UnixStream> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop()
    }
}
