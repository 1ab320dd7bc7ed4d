//! Requests of clients that speak TLS, segment by segment.

use std::{
    io::{Read, Write},
    sync::Arc,
};

use rustls::{
    crypto::aws_lc_rs, pki_types::ServerName, ClientConfig, ClientConnection, RootCertStore,
    SupportedProtocolVersion,
};
use serde_json::json;

use super::{with_address, GET, GET_B, OK};
use crate::peers::{Bed, Flags, Peer, A, B, CLIENT};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

/// A load balancer with a certificate, and what its clients need.
struct TlsBed {
    bed: Bed,
    _folder: tempfile::TempDir,
    settings: serde_json::Value,
    roots: RootCertStore,
}

impl TlsBed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["web.test".to_owned()]).unwrap();
        let (certificate, key) = (folder.path().join("web.crt"), folder.path().join("web.key"));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let settings = json!({"tls": {"certificate": certificate, "key": key}});
        Self {
            bed: Bed::with(settings.clone()),
            _folder: folder,
            settings,
            roots,
        }
    }

    fn moved(self) -> Self {
        let bed = self.bed.moved_to(self.settings.clone());
        Self { bed, ..self }
    }

    /// Opens a TCP connection.
    fn client(&mut self, port: u16, version: &'static SupportedProtocolVersion) -> Client {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        let name = ServerName::try_from("web.test").unwrap();
        Client {
            peer: self.bed.client(port),
            tls: ClientConnection::new(Arc::new(config), name).unwrap(),
            data: Vec::new(),
            has_fin: false,
        }
    }

    /// Opens a connection with TLS.
    fn connected(&mut self, port: u16, version: &'static SupportedProtocolVersion) -> Client {
        let mut client = self.client(port, version);
        client.handshake(&mut self.bed);
        client
    }
}

struct Client {
    peer: Peer,
    tls: ClientConnection,
    data: Vec<u8>,
    has_fin: bool,
}

impl Client {
    /// Sends what TLS has to send, in segments of 1000 bytes.
    fn flush(&mut self, bed: &mut Bed) {
        let mut out = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut out).unwrap();
        }
        for part in out.chunks(1000) {
            self.peer.say(bed, part);
        }
    }

    /// Receives what was sent to it. Returns the number of segments.
    fn receive(&mut self, bed: &mut Bed) -> usize {
        let segments = bed.take(CLIENT);
        for segment in &segments {
            assert!(!segment.rst, "{segment:?}");
            self.peer.hear_bytes(segment);
            self.has_fin |= segment.fin;
            let mut bytes = &segment.payload[..];
            while !bytes.is_empty() {
                self.tls.read_tls(&mut bytes).unwrap();
                self.tls.process_new_packets().unwrap();
                let _ = self.tls.reader().read_to_end(&mut self.data);
            }
        }
        segments.len()
    }

    fn handshake(&mut self, bed: &mut Bed) {
        let before = bed.counter("tls_handshakes");
        while bed.counter("tls_handshakes") == before {
            self.flush(bed);
            // The handshake's thread takes its own time.
            bed.tick();
            self.receive(bed);
            std::thread::yield_now();
        }
        self.receive(bed);
        self.peer.send(bed, Flags::Ack, b"");
        assert!(!self.tls.is_handshaking());
    }

    fn say(&mut self, bed: &mut Bed, text: &str) {
        self.tls.writer().write_all(text.as_bytes()).unwrap();
        self.flush(bed);
    }

    fn heard(&mut self, bed: &mut Bed) -> String {
        self.receive(bed);
        self.peer.send(bed, Flags::Ack, b"");
        String::from_utf8(std::mem::take(&mut self.data)).unwrap()
    }
}

#[test]
fn requests_are_routed_as_without_tls() {
    for version in VERSIONS {
        let mut tls = TlsBed::new();
        let mut client = tls.connected(1, version);
        let bed = &mut tls.bed;
        client.say(bed, GET);
        let mut a = bed.backend(A);
        let request = bed.one(A);
        assert_eq!(a.hear(&request), with_address(GET));
        a.say(bed, OK);
        assert_eq!(client.heard(bed), OK);
        client.say(bed, GET_B);
        let _acknowledgements = bed.take(A);
        let mut b = bed.backend(B);
        let request = bed.one(B);
        assert_eq!(b.hear(&request), with_address(GET_B));
        b.say(bed, OK);
        assert_eq!(client.heard(bed), OK);
        client.say(bed, &GET.replace("/x", "/ping"));
        assert!(client.heard(bed).ends_with("\r\n\r\npong\n"));
    }
}

#[test]
fn a_connection_moves_with_its_keys() {
    for version in VERSIONS {
        let mut tls = TlsBed::new();
        let mut client = tls.connected(1, version);
        client.say(&mut tls.bed, GET);
        let mut a = tls.bed.backend(A);
        let request = tls.bed.one(A);
        assert_eq!(a.hear(&request), with_address(GET));
        let (head, body) = OK.split_at(OK.len() - 2);
        a.say(&mut tls.bed, head);
        assert_eq!(client.heard(&mut tls.bed), head);
        let mut tls = tls.moved();
        a.say(&mut tls.bed, body);
        assert_eq!(client.heard(&mut tls.bed), body);
        client.say(&mut tls.bed, GET);
        let requests = tls.bed.take(A);
        let request = requests.iter().find(|seen| !seen.payload.is_empty());
        assert_eq!(a.hear(request.unwrap()), with_address(GET));
    }
}

#[test]
fn a_handshake_in_progress_is_reset_after_a_move() {
    let mut tls = TlsBed::new();
    let mut client = tls.client(1, &rustls::version::TLS13);
    client.flush(&mut tls.bed);
    while client.receive(&mut tls.bed) == 0 {
        tls.bed.tick();
        std::thread::yield_now();
    }
    let mut tls = tls.moved();
    client.flush(&mut tls.bed);
    assert!(tls.bed.take(CLIENT).iter().any(|seen| seen.rst));
    assert_eq!(tls.bed.counter("tls_connections"), 0);
}

#[test]
fn a_close_notify_is_answered_and_ends_both_sides() {
    for version in VERSIONS {
        let mut tls = TlsBed::new();
        let mut client = tls.connected(1, version);
        let bed = &mut tls.bed;
        client.say(bed, GET);
        let mut a = bed.backend(A);
        let request = bed.one(A);
        a.hear(&request);
        a.say(bed, OK);
        assert_eq!(client.heard(bed), OK);
        client.tls.send_close_notify();
        client.flush(bed);
        client.receive(bed);
        assert!(client.has_fin);
        let state = client.tls.process_new_packets().unwrap();
        assert!(state.peer_has_closed());
        client.peer.send(bed, Flags::Fin, b"");
        bed.wait(100);
        assert_eq!(bed.counter("tls_connections"), 0);
        assert_eq!(bed.counter("connections"), 0);
        assert!(bed.take(A).iter().any(|seen| seen.rst || seen.fin));
    }
}

#[test]
fn an_end_without_close_notify_resets_the_backend() {
    let mut tls = TlsBed::new();
    let mut client = tls.connected(1, &rustls::version::TLS13);
    let bed = &mut tls.bed;
    let post = "POST /x HTTP/1.1\r\nHost: web\r\nContent-Length: 9\r\n\r\n";
    client.say(bed, post);
    let mut a = bed.backend(A);
    let request = bed.one(A);
    a.hear(&request);
    client.peer.send(bed, Flags::Fin, b"");
    assert!(bed.take(A).iter().any(|seen| seen.rst));
    assert_eq!(bed.counter("connections"), 0);
}

#[test]
fn a_broken_record_ends_the_connection_with_an_alert() {
    let mut tls = TlsBed::new();
    let mut client = tls.connected(1, &rustls::version::TLS13);
    let bed = &mut tls.bed;
    client.peer.say(
        bed,
        [23, 3, 3, 0, 20]
            .iter()
            .chain(&[9; 20])
            .copied()
            .collect::<Vec<u8>>(),
    );
    let segments = bed.take(CLIENT);
    assert!(segments.iter().any(|seen| seen.fin));
    let payload: Vec<u8> = segments
        .iter()
        .flat_map(|seen| seen.payload.clone())
        .collect();
    client.tls.read_tls(&mut &payload[..]).unwrap();
    let error = client.tls.process_new_packets().unwrap_err();
    assert_eq!(
        error,
        rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac)
    );
    assert_eq!(bed.counter("tls_records_refused"), 1);
    assert_eq!(bed.counter("connections"), 0);
}

#[test]
fn a_client_that_does_not_speak_tls_gets_an_alert() {
    let mut tls = TlsBed::new();
    let mut peer = tls.bed.client(1);
    peer.say(&mut tls.bed, GET);
    while tls.bed.counter("tls_handshakes_failed") == 0 {
        tls.bed.tick();
        std::thread::yield_now();
    }
    let answer = tls.bed.take(CLIENT);
    let payload: Vec<u8> = answer
        .iter()
        .flat_map(|seen| seen.payload.clone())
        .collect();
    assert!(payload.starts_with(&[21, 3]), "{payload:?}");
    assert!(answer.iter().any(|seen| seen.fin));
}

#[test]
fn a_handshake_that_stalls_times_out() {
    let mut tls = TlsBed::new();
    let mut peer = tls.bed.client(1);
    peer.say(&mut tls.bed, [22_u8, 3, 1]);
    tls.bed.wait(11_000);
    assert!(tls.bed.take(CLIENT).iter().any(|seen| seen.rst));
    assert_eq!(tls.bed.counter("tls_handshakes_failed"), 1);
    assert_eq!(tls.bed.counter("tls_connections"), 0);
}

#[test]
fn lost_records_are_sent_again() {
    let mut tls = TlsBed::new();
    let mut client = tls.connected(1, &rustls::version::TLS13);
    let bed = &mut tls.bed;
    client.say(bed, GET);
    let mut a = bed.backend(A);
    let request = bed.one(A);
    a.hear(&request);
    a.say(bed, OK);
    let _lost = bed.take(CLIENT);
    bed.wait(400);
    assert_eq!(client.heard(bed), OK);
}

#[test]
fn faults_of_the_configuration_name_the_value() {
    let tls = TlsBed::new();
    let missing = json!({"tls": {"certificate": "/none.crt", "key": "/none.key"}});
    let neither = json!({"tls": {"certificate": "/none.crt"}});
    let scheme = json!({"tls": {"certificate": "/none.crt", "signer": "tcp:1"}});
    let proxied = json!({
        "tls": {"certificate": "/none.crt", "key": "/none.key"},
        "proxy_protocol": true,
    });
    let passing = json!({
        "tls": {"certificate": "/none.crt", "key": "/none.key"},
        "mode": "tls-passthrough",
    });
    for (settings, path, reason) in [
        (passing, "listeners[0].tls", "passthrough"),
        (proxied, "listeners[0].proxy_protocol", "tls"),
        (missing, "listeners[0].tls.certificate", "/none.crt"),
        (neither, "listeners[0].tls.key", "signer"),
        (scheme, "listeners[0].tls.signer", "unix:"),
    ] {
        let function = tls.bed.lb.function();
        let refusal =
            nf_runtime::NetworkFunction::configure(function, crate::peers::config(settings));
        let text = refusal.unwrap_err().to_string();
        assert!(text.contains(path) && text.contains(reason), "{text}");
    }
}
