//! Compares lines with those of PRADS itself: on frames of each kind, and on the capture files that os-ken's package brings. Without PRADS (`tools/prepare test`
//! unpacks it) nothing is compared, and the test says so. `bench/assets` compares on all capture files of several packages.

#![allow(clippy::unwrap_used)] // tests

mod common;

use std::{
    fs::{self, File},
    io::BufReader,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use common::{arp_reply, ipv4, segment, udp, ACK, FIN, SYN};
use nf_arena::ArenaBuilder;
use nf_assets::{Capacity, Captured, Check, Checks, Connections, Inspector, Register, Signatures};
use nf_runtime::state::StateBuilder;
use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};

/// Turns on what PRADS looks for only on request.
const ALL: &str = "mac=1\narp=1\nservice_tcp=1\nclient_tcp=1\nservice_udp=1\nos_udp=1\nos_syn_fingerprint=1\n\
                   os_synack_fingerprint=1\nos_ack_fingerprint=1\nos_rst_fingerprint=1\nos_fin_fingerprint=1\n";

/// Returns PRADS and the directory of its signatures.
fn prads() -> Option<(PathBuf, PathBuf)> {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv");
    let unpacked = (venv.join("bin/prads"), venv.join("prads/etc/prads"));
    let installed = ("/usr/bin/prads".into(), "/etc/prads".into());
    [unpacked, installed]
        .into_iter()
        .find(|(program, signatures)| program.exists() && signatures.exists())
}

/// Returns the lines that PRADS writes for a capture file.
fn expected(program: &Path, capture: &Path, directory: &Path) -> Vec<String> {
    let (config, log) = (directory.join("prads.conf"), directory.join("prads.log"));
    fs::write(&config, ALL).unwrap();
    let _ = fs::remove_file(&log);
    let paths = [
        Path::new("-c"),
        &config,
        Path::new("-l"),
        &log,
        Path::new("-r"),
        capture,
    ];
    let output = Command::new(program).args(paths).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = fs::read(&log).unwrap();
    // Its first line is a heading.
    String::from_utf8_lossy(&text)
        .lines()
        .skip(1)
        .map(str::to_owned)
        .collect()
}

fn found(signatures: &Signatures, capture: &Path) -> Vec<String> {
    let mut state = StateBuilder::new(ArenaBuilder::fresh("assets", 1).unwrap());
    let capacity = Capacity {
        hosts: 4096,
        findings: 8192,
    };
    let register = Register::declare(capacity, &mut state).unwrap();
    let connections = Connections::declare(4096, &mut state).unwrap();
    let mut checks = Checks::prads();
    checks.extend([Check::Ack, Check::UdpSystem, Check::Arp]);
    let inspector = Inspector {
        signatures,
        checks: Checks::of(&checks),
        register: &register,
        connections: &connections,
    };
    let mut reader = PcapReader::new(BufReader::new(File::open(capture).unwrap())).unwrap();
    let mut lines = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        let (length, time) = (packet.orig_len as usize, packet.timestamp.as_secs());
        inspector.inspect(&Captured::new(&packet.data, length, time), 1, &mut lines);
    }
    String::from_utf8_lossy(&lines)
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Puts a frame into a VLAN, with a priority.
fn tagged(mut frame: Vec<u8>) -> Vec<u8> {
    frame.splice(12..12, [0x81, 0, 0x60, 5]);
    frame
}

/// Returns a conversation with what the signatures know and do not know.
fn frames() -> Vec<Vec<u8>> {
    let (client, server) = ((1, 40000), (2, 80));
    let mut banner = b"HTTP/1.1 200 OK\r\nServer: Apache/2.4.57 (Debian)\r\n".to_vec();
    banner.resize(900, b'x');
    let resets = 4;
    let mut frames = vec![
        segment(client, server, SYN, b""),
        segment(server, client, SYN | ACK, b""),
        segment(
            client,
            server,
            ACK,
            b"GET / HTTP/1.1\r\nUser-Agent: curl/8.1\r\n",
        ),
        segment(server, client, ACK, &banner),
        segment(client, server, FIN | ACK, b""),
        segment(server, client, resets, b""),
        // A service that only its port tells, and then says what it is.
        segment((3, 5000), (4, 22), SYN, b""),
        segment((4, 22), (3, 5000), SYN | ACK, b""),
        segment((4, 22), (3, 5000), ACK, b"not yet a banner"),
        segment((4, 22), (3, 5000), ACK, b"SSH-2.0-OpenSSH_9.2p1 Debian-2"),
        segment((4, 22), (3, 5000), ACK, b"SSH-2.0-OpenSSH_9.3p1 Debian-2"),
        // An answer without its question turns the connection round.
        segment((5, 443), (6, 6000), SYN | ACK, b""),
        segment(
            (5, 443),
            (6, 6000),
            ACK,
            b"\x16\x03\x01\0\x4a\x02\0\0\x46\x03\x01 and more",
        ),
        udp((7, 5353), (8, 53), b"question"),
        udp((8, 53), (7, 5353), b"ab\x81\x80\x00\x01\x00\x01"),
        udp((9, 123), (10, 4000), b"an answer first"),
        udp((10, 4000), (9, 123), b"and then a question"),
        arp_reply(2, 2),
        arp_reply(2, 9),
        tagged(segment((11, 1), (12, 2), SYN, b"")),
        tagged(arp_reply(11, 4)),
        // ICMP, a protocol without ports, and an IPv6 packet in an IPv4 one.
        ipv4(1, 13, 14, &[8, 0, 0, 0, 0, 1, 0, 1]),
        ipv4(50, 13, 14, &[0; 30]),
    ];
    let mut inner = vec![0x60, 0, 0, 0, 0, 8, 17, 60];
    inner.extend([0xfe; 32]);
    inner.extend([0, 53, 9, 9, 0, 8, 0, 0]);
    frames.push(ipv4(41, 15, 16, &inner));
    // Another program replaces the known one after more than 200 connections.
    for port in 6000..6210 {
        frames.push(segment((3, port), (4, 22), SYN, b""));
        frames.push(segment((4, 22), (3, port), ACK, b"SSH-2.0-libssh-0.9"));
    }
    frames
}

fn os_ken() -> Vec<PathBuf> {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/lib");
    let pythons = fs::read_dir(packages).into_iter().flatten().flatten();
    let folders = pythons.map(|python| {
        python
            .path()
            .join("site-packages/os_ken/tests/packet_data/pcap")
    });
    let files = folders
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .flatten();
    let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "pcap")
    });
    files.sort();
    files
}

#[test]
fn lines_equal_those_of_prads() {
    let Some((program, files)) = prads() else {
        println!("no PRADS: nothing is compared; tools/prepare test unpacks it");
        return;
    };
    let signatures = Signatures::load(&files).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().join("own.pcap");
    let mut writer = PcapWriter::new(File::create(&own).unwrap()).unwrap();
    for (seconds, frame) in (1_700_000_000..).zip(frames()) {
        let packet = PcapPacket::new(Duration::from_secs(seconds), frame.len() as u32, &frame);
        writer.write_packet(&packet).unwrap();
    }
    drop(writer);
    let expected_own = expected(&program, &own, directory.path());
    assert!(expected_own.len() > 28, "{expected_own:#?}");
    assert_eq!(found(&signatures, &own), expected_own);
    for capture in os_ken() {
        let lines = expected(&program, &capture, directory.path());
        assert_eq!(found(&signatures, &capture), lines, "{}", capture.display());
    }
}
