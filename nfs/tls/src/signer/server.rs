//! The process that signs.

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc,
    },
    thread,
};

use rustls::{crypto::aws_lc_rs, sign::SigningKey, SignatureScheme};

use super::{message::is_handshake, MAX_MESSAGE, REFUSED, SIGNED, VERSION};
use crate::identity::private_key;

/// The most connections at the same time.
const MOST: usize = 256;

/// A private key with the socket at which it signs.
pub struct Signer {
    key: Arc<dyn SigningKey>,
    listener: UnixListener,
}

impl Signer {
    /// Loads the key of a PEM file and listens at a path, which only the same user can open.
    ///
    /// # Errors
    /// The file that cannot be used, and the reason.
    pub fn open(key: &Path, socket: &Path) -> Result<Self, String> {
        let loaded = aws_lc_rs::default_provider()
            .key_provider
            .load_private_key(private_key(key)?)
            .map_err(|error| format!("{}: {error}", key.display()))?;
        let listener = listen(socket).map_err(|error| format!("{}: {error}", socket.display()))?;
        Ok(Self {
            key: loaded,
            listener,
        })
    }

    /// Signs for each client until accepting fails. `refused`: gets the reason of each refusal.
    ///
    /// # Errors
    /// The reason why no further client can be accepted.
    pub fn run(&self, refused: impl Fn(&str) + Send + Sync + Clone + 'static) -> io::Result<()> {
        let open = Arc::new(AtomicUsize::new(0));
        for stream in self.listener.incoming() {
            let mut stream = stream?;
            if open.fetch_add(1, Ordering::Relaxed) >= MOST {
                open.fetch_sub(1, Ordering::Relaxed);
                refused("too many connections");
                continue;
            }
            let (key, open, refused) = (Arc::clone(&self.key), Arc::clone(&open), refused.clone());
            thread::spawn(move || {
                while let Ok(reply) = one(&mut stream, key.as_ref()) {
                    if let Err(reason) = &reply {
                        refused(reason);
                    }
                    if answer(&mut stream, reply).is_err() {
                        break;
                    }
                }
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
        Ok(())
    }
}

/// Listens at a path, in place of a process that has ended without removing its socket.
fn listen(path: &Path) -> io::Result<UnixListener> {
    match UnixStream::connect(path) {
        Ok(_) => return Err(io::Error::from(io::ErrorKind::AddrInUse)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Reads one request. Returns the signature, or the reason of a refusal.
fn one(stream: &mut UnixStream, key: &dyn SigningKey) -> io::Result<Result<Vec<u8>, String>> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let [version, high, low, ..] = head;
    let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
    let scheme = SignatureScheme::from(u16::from_be_bytes([high, low]));
    if version != VERSION || length > MAX_MESSAGE {
        // The rest of the stream has no meaning.
        let reason = format!("version {version}, {length} bytes; expected version {VERSION}, at most {MAX_MESSAGE} bytes");
        answer(stream, Err(reason))?;
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message)?;
    Ok(sign(key, scheme, &message))
}

fn sign(key: &dyn SigningKey, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, String> {
    if !is_handshake(message) {
        return Err("not a message of a TLS handshake".to_owned());
    }
    let signer = key
        .choose_scheme(&[scheme])
        .ok_or_else(|| format!("{scheme:?} does not belong to the key"))?;
    signer.sign(message).map_err(|error| error.to_string())
}

fn answer(stream: &mut UnixStream, reply: Result<Vec<u8>, String>) -> io::Result<()> {
    let (status, bytes) = match reply {
        Ok(signature) => (SIGNED, signature),
        Err(reason) => (REFUSED, reason.into_bytes()),
    };
    let mut message = vec![status];
    message.extend((bytes.len() as u16).to_be_bytes());
    message.extend(bytes);
    stream.write_all(&message)
}
