//! rustls' client, and the server under test, over memory.

use std::{
    io::{Read, Write},
    sync::Arc,
};

use nf_tls::{Handshake, Header, Identity, Key, Progress, Received, Session};
use rustls::{
    crypto::aws_lc_rs, pki_types::ServerName, ClientConfig, ClientConnection, Error, IoState,
    RootCertStore, SupportedCipherSuite,
};

use aws_lc_rs::cipher_suite::*;

/// The suites that clients offer one by one.
pub const SUITES: [SupportedCipherSuite; 6] = [
    TLS13_AES_128_GCM_SHA256,
    TLS13_AES_256_GCM_SHA384,
    TLS13_CHACHA20_POLY1305_SHA256,
    TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// Certificates of one.test, and of two.test with all names below it.
pub struct Files {
    folder: tempfile::TempDir,
    roots: RootCertStore,
}

impl Files {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut roots = RootCertStore::empty();
        for (file, names) in [
            ("one", vec!["one.test"]),
            ("two", vec!["two.test", "*.two.test"]),
        ] {
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            let made = rcgen::generate_simple_self_signed(names).unwrap();
            roots.add(made.cert.der().clone()).unwrap();
            let write = |kind: &str, text: String| {
                std::fs::write(folder.path().join(format!("{file}.{kind}")), text).unwrap();
            };
            write("crt", made.cert.pem());
            write("key", made.signing_key.serialize_pem());
        }
        Self { folder, roots }
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    pub fn identities(&self) -> Vec<Identity> {
        let identity = |name: &str| Identity {
            certificate: self.path(&format!("{name}.crt")),
            key: Key::File(self.path(&format!("{name}.key"))),
        };
        vec![identity("one"), identity("two")]
    }
}

pub struct Client {
    pub connection: ClientConnection,
    data: Vec<u8>,
}

impl Client {
    pub fn new(files: &Files, suite: SupportedCipherSuite, name: &str) -> Self {
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites = vec![suite];
        Self::of(files, provider, name, &[])
    }

    pub fn with_protocols(files: &Files, protocols: &[&str]) -> Self {
        Self::of(files, aws_lc_rs::default_provider(), "one.test", protocols)
    }

    fn of(
        files: &Files,
        provider: rustls::crypto::CryptoProvider,
        name: &str,
        protocols: &[&str],
    ) -> Self {
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(files.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        Self {
            connection: ClientConnection::new(Arc::new(config), name).unwrap(),
            data: Vec::new(),
        }
    }

    pub fn say(&mut self, bytes: &[u8]) {
        self.connection.set_buffer_limit(None);
        self.connection.writer().write_all(bytes).unwrap();
    }

    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Returns what it sends.
    pub fn written(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut out).unwrap();
        }
        out
    }

    /// Receives bytes.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<IoState, Error> {
        let mut state = self.connection.process_new_packets()?;
        while !bytes.is_empty() {
            self.connection.read_tls(&mut bytes).unwrap();
            state = self.connection.process_new_packets()?;
            // It ends with WouldBlock while the connection is open.
            let _ = self.connection.reader().read_to_end(&mut self.data);
        }
        Ok(state)
    }

    /// Takes the data that it has received.
    pub fn heard(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.data)
    }
}

/// The server during its handshake.
pub struct Server(Handshake);

impl Server {
    pub fn begin(files: &Files) -> Self {
        Self::of(&files.identities())
    }

    pub fn of(identities: &[Identity]) -> Self {
        let config = nf_tls::server_config(identities).unwrap();
        Self(Handshake::new(&config).unwrap())
    }

    /// Feeds bytes that end the handshake without success. Returns the reason and the bytes sent.
    pub fn refused(self, bytes: &[u8]) -> (String, Vec<u8>) {
        let mut out = Vec::new();
        match self.0.feed(bytes, &mut out) {
            Progress::Failed(reason) => (reason, out),
            _ => panic!("the handshake goes on"),
        }
    }
}

/// The server after its handshake.
pub struct Talking {
    pub session: Session,
    input: Vec<u8>,
}

impl Talking {
    /// Handles the client's next record.
    pub fn next(&mut self, client: &mut Client) -> Result<Received, nf_tls::Alert> {
        self.input.extend(client.written());
        let header = Header::read(&self.input)?.unwrap();
        let mut record: Vec<u8> = self.input.drain(..header.length).collect();
        self.session.open(&mut record)
    }

    /// Returns the data of everything that the client has written.
    pub fn hear(&mut self, client: &mut Client) -> Vec<u8> {
        self.input.extend(client.written());
        let mut data = Vec::new();
        while let Some(header) = Header::read(&self.input).unwrap() {
            let mut record: Vec<u8> = self.input.drain(..header.length).collect();
            if let Received::Data(range) = self.session.open(&mut record).unwrap() {
                data.extend_from_slice(&record[range]);
            }
        }
        assert!(self.input.is_empty());
        data
    }

    pub fn say(&mut self, client: &mut Client, data: &[u8]) {
        let mut out = Vec::new();
        self.session.seal(data, &mut out).unwrap();
        assert!(out.len() <= Session::sealed(data.len()));
        for part in out.chunks(1000) {
            client.take(part).unwrap();
        }
    }
}

/// Runs a handshake with the client's bytes in parts of these sizes, in turn. An error: the reason of the server, or the client's.
pub fn finish(
    mut client: Client,
    server: Server,
    sizes: &[usize],
) -> Result<(Client, Talking), String> {
    let mut sizes = sizes.iter().cycle();
    let mut handshake = Some(server.0);
    for _ in 0..10 {
        let bytes = client.written();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (part, later) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
            rest = later;
            let mut out = Vec::new();
            let progress = handshake.take().unwrap().feed(part, &mut out);
            let received = client.take(&out);
            match progress {
                Progress::Continues(next) => handshake = Some(*next),
                Progress::Done(done) => {
                    received.unwrap();
                    let input = [&done.rest[..], rest].concat();
                    let session = done.session;
                    return Ok((client, Talking { session, input }));
                }
                Progress::Failed(reason) => {
                    return Err(format!("{reason}; the client: {:?}", received.err()))
                }
            }
            received.map_err(|error| error.to_string())?;
        }
    }
    Err("no end".to_owned())
}

pub fn connected(files: &Files, suite: SupportedCipherSuite, sizes: &[usize]) -> (Client, Talking) {
    let client = Client::new(files, suite, "one.test");
    finish(client, Server::begin(files), sizes).unwrap()
}
