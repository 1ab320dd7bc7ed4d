//! The function with nDPI. The program nf-dpi must have been built with nDPI; without it, the tests say so and end.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // tests

mod common;

use std::path::PathBuf;

use common::{config, handshake, tcp, End, ACK};
use nf_firewall::{Firewall, Ndpi};
use nf_runtime::{testing::Harness, Batch, NetworkFunction, Verdict};
use serde_json::{json, Value};

const CLIENT: End = (1, 40_000);
const SERVER: End = (2, 80);

/// Returns the program beside the tests' folder.
fn program() -> Option<PathBuf> {
    let folder = std::env::current_exe()
        .ok()?
        .parent()?
        .parent()?
        .join("nf-dpi");
    folder.is_file().then_some(folder)
}

fn firewall(program: PathBuf, rules: Value) -> Option<Harness<Firewall<Ndpi>>> {
    let config = config(
        json!({"flows": 64, "inspection": {"memory_mib": 1, "helper": program}, "rules": rules}),
    );
    match Harness::new(config) {
        Ok(nf) => Some(nf),
        Err(refusal) if refusal.detail.contains("without nDPI") => {
            eprintln!("not tested: {refusal}");
            None
        }
        Err(refusal) => panic!("{refusal}"),
    }
}

/// Lets the function wait for the inspector, as in a replay; returns what leaves.
fn leaving(nf: &Harness<Firewall<Ndpi>>, port: usize, frame: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut batch = Batch::new();
    batch.push(port, frame).unwrap();
    nf.function().process(&mut batch, &nf.context().patient());
    assert_ne!(batch.packets()[0].verdict(), Verdict::NONE);
    let left = batch
        .leaving()
        .map(|(port, frame)| (port, frame.bytes.to_vec()));
    left.collect()
}

fn says(payload: &[u8]) -> Vec<u8> {
    tcp(CLIENT, SERVER, ACK, 101, 501, payload)
}

#[test]
fn a_request_is_let_through_by_its_host_and_refused_by_another() {
    let Some(program) = program() else {
        return eprintln!("not tested: nf-dpi is not built");
    };
    let request = |host: &str| {
        says(format!("GET / HTTP/1.1\r\nHost: {host}\r\nUser-Agent: curl\r\n\r\n").as_bytes())
    };
    for (host, is_allowed) in [("www.example.com", true), ("example.org", false)] {
        let rules = json!([{"name": "example", "applications": ["HTTP"], "hosts": ["*.example.com"], "action": "allow"}]);
        let Some(nf) = firewall(program.clone(), rules) else {
            return;
        };
        for (port, frame) in handshake(CLIENT, SERVER) {
            assert_eq!(leaving(&nf, port, &frame), [(1 - port, frame)]);
        }
        let mut left = leaving(&nf, 0, &request(host));
        // The verdict may need the answer.
        let answer = tcp(
            SERVER,
            CLIENT,
            ACK,
            501,
            101 + request(host).len() as u32 - 54,
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\nhello",
        );
        left.extend(leaving(&nf, 1, &answer));
        let flows = nf.function().control("flows", &json!({})).unwrap().unwrap();
        assert_eq!(left.contains(&(0, answer)), is_allowed, "{host}: {flows}");
        let flow = &flows["flows"][0];
        assert_eq!(
            flow["action"],
            if is_allowed { "allow" } else { "drop" },
            "{flow}"
        );
        assert_eq!(flow["application"], "HTTP", "{flow}");
    }
}

#[test]
fn unknown_names_are_refused_with_ndpis_nearest() {
    let Some(program) = program() else {
        return eprintln!("not tested: nf-dpi is not built");
    };
    let config = config(
        json!({"inspection": {"helper": program}, "rules": [{"name": "x", "applications": ["TLS.YouTub"], "action": "drop"}]}),
    );
    let refusal = Harness::<Firewall<Ndpi>>::new(config).err().unwrap();
    if !refusal.detail.contains("without nDPI") {
        assert!(
            refusal.detail.contains("rules[0].applications[0]")
                && refusal.detail.contains("YouTube"),
            "{refusal}"
        );
    }
}
