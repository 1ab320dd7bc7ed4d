//! Handshakes whose key is at a signer.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::mpsc,
};

use nf_tls::{signer::Signer, Identity, Key};

use crate::client::{self, Client, Files, Server, SUITES};

fn identity(files: &Files) -> Identity {
    Identity {
        certificate: files.path("one.crt"),
        key: Key::Signer(files.path("signer")),
    }
}

/// Starts a signer with the key of a file. Returns the reasons of its refusals.
fn signer(files: &Files, key: &str) -> mpsc::Receiver<String> {
    let (sender, reasons) = mpsc::channel();
    let signer = Signer::open(&files.path(key), &files.path("signer")).unwrap();
    std::thread::spawn(move || {
        signer.run(move |reason| {
            let _ = sender.send(reason.to_owned());
        })
    });
    reasons
}

#[test]
fn a_signer_signs_for_both_versions() {
    let files = Files::new();
    let _refusals = signer(&files, "one.key");
    for suite in SUITES {
        let client = Client::new(&files, suite, "one.test");
        let server = Server::of(&[identity(&files)]);
        client::finish(client, server, &[usize::MAX]).unwrap();
    }
}

#[test]
fn without_a_signer_the_client_gets_an_alert() {
    let files = Files::new();
    for suite in SUITES {
        let client = Client::new(&files, suite, "one.test");
        let server = Server::of(&[identity(&files)]);
        let Err(reason) = client::finish(client, server, &[usize::MAX]) else {
            panic!("a handshake without a key");
        };
        assert!(reason.contains("signer: "), "{reason}");
        assert!(reason.contains("AlertReceived(InternalError)"), "{reason}");
    }
}

#[test]
fn a_signer_that_comes_back_is_found() {
    let files = Files::new();
    let server = || Server::of(&[identity(&files)]);
    let client = || Client::new(&files, SUITES[0], "one.test");
    assert!(client::finish(client(), server(), &[usize::MAX]).is_err());
    let _refusals = signer(&files, "one.key");
    client::finish(client(), server(), &[usize::MAX]).unwrap();
}

#[test]
fn a_signer_refuses_everything_but_handshakes() {
    let files = Files::new();
    let refusals = signer(&files, "one.key");
    let mut stream = UnixStream::connect(files.path("signer")).unwrap();
    let mut ask = |scheme: u16, message: &[u8]| {
        let length = (message.len() as u16).to_be_bytes();
        let request = [&[1], &scheme.to_be_bytes()[..], &length, message].concat();
        stream.write_all(&request).unwrap();
        let mut head = [0; 3];
        stream.read_exact(&mut head).unwrap();
        let mut reply = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
        stream.read_exact(&mut reply).unwrap();
        (head[0], reply)
    };
    let verify = [
        &[0x20; 64][..],
        b"TLS 1.3, server CertificateVerify\0",
        &[7; 32],
    ]
    .concat();
    const ECDSA_P256: u16 = 0x0403;
    const RSA_PSS: u16 = 0x0804;
    assert_eq!(ask(ECDSA_P256, &verify).0, 0);
    assert_eq!(ask(ECDSA_P256, b"a certificate").0, 1);
    assert_eq!(ask(RSA_PSS, &verify).0, 1);
    assert_eq!(ask(ECDSA_P256, &[0x20; 600]).0, 1);
    let reasons: Vec<_> = (0..2).map(|_| refusals.recv().unwrap()).collect();
    assert!(
        reasons[0].contains("handshake") && reasons[1].contains("scheme")
            || reasons[1].contains("key"),
        "{reasons:?}"
    );
}

#[test]
fn the_socket_belongs_to_one_user_and_one_signer() {
    use std::os::unix::fs::PermissionsExt;
    let files = Files::new();
    let (key, socket) = (files.path("one.key"), files.path("signer"));
    let first = Signer::open(&key, &socket).unwrap();
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let Err(reason) = Signer::open(&key, &socket) else {
        panic!("two signers at one socket");
    };
    assert!(reason.contains(socket.to_str().unwrap()), "{reason}");
    drop(first);
    Signer::open(&key, &socket).unwrap();
}

#[test]
fn faults_name_the_file() {
    let files = Files::new();
    let missing = Identity {
        certificate: files.path("three.crt"),
        key: Key::File(files.path("one.key")),
    };
    let other = Identity {
        certificate: files.path("one.crt"),
        key: Key::File(files.path("two.key")),
    };
    let swapped = Identity {
        certificate: files.path("one.key"),
        key: Key::File(files.path("one.key")),
    };
    let keyless = Identity {
        certificate: files.path("one.crt"),
        key: Key::File(files.path("one.crt")),
    };
    for (identity, field, file) in [
        (missing, "certificate", "three.crt"),
        (other, "key", "two.key"),
        (swapped, "certificate", "one.key"),
        (keyless, "key", "one.crt"),
    ] {
        let first = files.identities().remove(0);
        let problem = nf_tls::server_config(&[first, identity]).unwrap_err();
        assert_eq!((problem.identity, problem.field), (1, field));
        assert!(problem.reason.contains(file), "{problem:?}");
    }
}
