//! Feeds arbitrary bytes to the parsers of signatures, and as frames to the detection of assets.

#![no_main]

use std::{path::Path, sync::OnceLock};

use libfuzzer_sys::fuzz_target;
use nf_assets::{Assets, Config, DhcpSignatures, Links, ServiceSignatures, TcpSignatures, Vendors};
use nf_runtime::testing::{Harness, Output};

/// Some signatures of each kind, in the files that the function reads.
const FILES: [(&str, &str); 11] = [
    ("tcp-syn.fp", "S4:64:1:60:M*,S,T,N,W7:.:Linux:2.6\n"),
    ("tcp-synack.fp", "S4:64:1:44:M*:A:Linux:2.6\n"),
    ("tcp-stray-ack.fp", "*:64:1:0:.:A:Linux:2.6\n"),
    ("tcp-fin.fp", "512:64:1:40:.:AFN:Linux:2.6\n"),
    ("tcp-rst.fp", "0:64:1:40:.:.:Linux:2.6\n"),
    ("tcp-service.sig", "http,v/nginx/$1//,Server: nginx\\/([\\S]+)\n"),
    ("tcp-clients.sig", "http,v/$1///,User-Agent\\x3a (.*)\\r\n"),
    ("udp-service.sig", "domain,v/DNS///,\\x81\\x80\\x00\\x01\n"),
    ("mac.sig", "02:00:00\tTest\n"),
    ("dhcp.fp", "1:64:53,55,255:1,3,6:MSFT 5.0:Windows:7\n"),
    ("mtu.sig", "1500,\"ethernet/modem\"\n"),
];

fn config() -> Config {
    static DIRECTORY: OnceLock<std::path::PathBuf> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        let directory = std::env::temp_dir().join(format!("nf-assets-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for (name, text) in FILES {
            std::fs::write(directory.join(name), text).unwrap();
        }
        directory
    });
    let path: &Path = directory;
    let checks = [
        "syn", "syn-ack", "fin", "rst", "ack", "udp-system", "icmp-system", "tcp-server",
        "tcp-client", "udp-service", "arp", "neighbours", "dhcp",
    ];
    let config = serde_json::json!({"signatures": path, "checks": checks, "hosts": 8, "findings": 16, "connections": 16, "history_bytes": 4096});
    serde_json::from_value(config).unwrap()
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    match first % 8 {
        0 => drop(TcpSignatures::parse(rest)),
        1 => drop(ServiceSignatures::parse(rest)),
        2 => drop(Vendors::parse(rest)),
        3 => drop(DhcpSignatures::parse(rest)),
        4 => drop(Links::parse(rest)),
        _ => {
            let mut nf = Harness::<Assets>::new(config()).unwrap();
            // Frames of random lengths, one after the other.
            let mut rest = rest;
            while let Some((length, after)) = rest.split_first() {
                let (frame, after) = after.split_at(after.len().min(usize::from(*length)));
                if !frame.is_empty() {
                    assert_eq!(nf.process(0, frame), Output::Sent(1, frame.to_vec()));
                }
                rest = after;
            }
        }
    }
});
