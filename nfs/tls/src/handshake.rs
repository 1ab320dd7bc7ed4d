//! One handshake: bytes in, bytes out, and in the end a session.

use std::{
    io::Read,
    sync::{Arc, Mutex, PoisonError},
};

use rustls::{Error, KeyLog, ServerConfig, ServerConnection};

use crate::{
    keys::Keys,
    record::{kind, Header, HEADER},
    Alert, Session,
};

/// The most bytes that a client may send before its handshake ends.
const MOST_BYTES: usize = 1 << 16;

/// The progress of a handshake.
pub enum Progress {
    /// The client must send more.
    Continues(Box<Handshake>),
    Done(Box<Established>),
    /// It has failed for this reason; the bytes to send end with an alert.
    Failed(String),
}

/// The result of a handshake.
#[derive(Debug)]
pub struct Established {
    pub session: Session,
    /// The bytes that the client has sent after the handshake: records for `session`.
    pub rest: Vec<u8>,
}

/// A handshake in progress.
pub struct Handshake {
    connection: ServerConnection,
    secrets: Arc<Secrets>,
    /// A part of a record. rustls gets whole records only, so that it never holds bytes of those after the handshake.
    input: Vec<u8>,
    fed: usize,
}

impl Handshake {
    /// # Errors
    /// If the configuration cannot be used.
    pub fn new(config: &ServerConfig) -> Result<Self, Error> {
        let secrets = Arc::new(Secrets::default());
        let mut config = config.clone();
        config.enable_secret_extraction = true;
        config.key_log = Arc::clone(&secrets) as Arc<dyn KeyLog>;
        Ok(Self {
            connection: ServerConnection::new(Arc::new(config))?,
            secrets,
            input: Vec::new(),
            fed: 0,
        })
    }

    /// Continues with bytes of the client, and appends those to send.
    pub fn feed(mut self, bytes: &[u8], out: &mut Vec<u8>) -> Progress {
        self.input.extend_from_slice(bytes);
        while self.connection.is_handshaking() {
            let length = match Header::read(&self.input) {
                Ok(None) => return Progress::Continues(Box::new(self)),
                Ok(Some(header)) if self.input.len() < header.length => {
                    return Progress::Continues(Box::new(self))
                }
                Ok(Some(header)) => header.length,
                // rustls says what is wrong.
                Err(_) => HEADER,
            };
            self.fed += length;
            let record: Vec<u8> = self.input.drain(..length).collect();
            let before = out.len();
            let result = self.process(&record);
            while self.connection.wants_write() && self.connection.write_tls(out).is_ok() {}
            let result = result.and_then(|()| match self.fed {
                ..=MOST_BYTES => Ok(()),
                _ => Err(Error::General("the handshake is too long".to_owned())),
            });
            if let Err(error) = result {
                // rustls sends alerts for most of what clients do wrong, but not for what fails here.
                if matches!(error, Error::General(_)) || out.len() == before {
                    self.alert(out);
                }
                return Progress::Failed(error.to_string());
            }
        }
        match self.finish() {
            Ok(established) => Progress::Done(Box::new(established)),
            Err(reason) => Progress::Failed(reason),
        }
    }

    fn process(&mut self, record: &[u8]) -> Result<(), Error> {
        let mut rest = record;
        while !rest.is_empty() {
            let taken = self.connection.read_tls(&mut rest);
            if !taken.is_ok_and(|taken| taken > 0) {
                return Err(Error::General("rustls takes no bytes".to_owned()));
            }
            self.connection.process_new_packets()?;
        }
        if record.len() == HEADER {
            return Err(Error::General("not a record of TLS".to_owned()));
        }
        Ok(())
    }

    /// Takes the session of a finished handshake from rustls.
    fn finish(self) -> Result<Established, String> {
        let is_tls13 = self.connection.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3);
        let mut data = Vec::new();
        let mut connection = self.connection;
        // None, as rustls gets no record after the handshake's last.
        let _ = connection.reader().read_to_end(&mut data);
        let extracted = connection.dangerous_extract_secrets();
        let extracted = extracted.map_err(|error| error.to_string())?;
        let secrets = self.secrets.take();
        let (from, to) = if is_tls13 {
            (secrets.client, secrets.server)
        } else {
            (None, None)
        };
        if !data.is_empty() || is_tls13 && (from.is_none() || to.is_none()) {
            return Err("rustls keeps secrets or data".to_owned());
        }
        let from = Keys::new(extracted.rx.0, &extracted.rx.1, from.as_deref());
        let to = Keys::new(extracted.tx.0, &extracted.tx.1, to.as_deref());
        match (from, to) {
            (Some(from), Some(to)) => Ok(Established {
                session: Session::new(from, to),
                rest: self.input,
            }),
            _ => Err("rustls has agreed upon an unknown cipher".to_owned()),
        }
    }

    /// Appends an alert where rustls gives none: when a signer fails, among others.
    fn alert(&self, out: &mut Vec<u8>) {
        let alert = Alert::InternalError.bytes();
        let suite = self.connection.negotiated_cipher_suite();
        let secret = self.secrets.take().handshake;
        let keys = secret.zip(suite);
        let keys = keys.and_then(|(secret, suite)| Keys::derived(&secret, suite.suite()));
        match keys {
            Some(mut keys) => {
                let _ = keys.seal(kind::ALERT, &alert, out);
            }
            None => {
                out.extend_from_slice(&Header::bytes(kind::ALERT, alert.len()));
                out.extend_from_slice(&alert);
            }
        }
    }
}

/// The secrets of one connection.
#[derive(Default)]
struct Secrets(Mutex<Known>);

#[derive(Clone, Default)]
struct Known {
    client: Option<Vec<u8>>,
    server: Option<Vec<u8>>,
    /// The server's secret of the handshake itself.
    handshake: Option<Vec<u8>>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secrets")
    }
}

impl Secrets {
    fn take(&self) -> Known {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut known)
    }
}

impl KeyLog for Secrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match label {
            "CLIENT_TRAFFIC_SECRET_0" => &mut known.client,
            "SERVER_TRAFFIC_SECRET_0" => &mut known.server,
            "SERVER_HANDSHAKE_TRAFFIC_SECRET" => &mut known.handshake,
            _ => return,
        };
        *place = Some(secret.to_vec());
    }
}
