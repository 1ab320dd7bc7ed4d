//! The function as a whole: on its own signatures, moved at random packets, with little room.

#![allow(clippy::unwrap_used)] // tests

mod common;

use std::path::Path;

use common::{advertisement, arp_reply, discover, segment, udp, ACK, FIN, SYN};
use nf_assets::{Assets, Config};
use nf_runtime::{
    testing::{Harness, Output},
    NetworkFunction, Refusal,
};
use serde_json::{json, Value};
use tempfile::TempDir;

const FILES: [(&str, &str); 11] = [
    (
        "tcp-syn.fp",
        "S4:64:1:60:M*,S,T,N,W7:.:Linux:2.6\n8192:128:1:48:M1460,N,N,S:.:@Windows:XP\n",
    ),
    ("tcp-synack.fp", "S4:64:1:44:M*:A:Linux:answering\n"),
    ("tcp-stray-ack.fp", "*:64:1:0:.:A:Linux:talking\n"),
    ("tcp-fin.fp", "512:64:1:40:.:AFN:Linux:leaving\n"),
    ("tcp-rst.fp", "0:64:1:40:.:.:Linux:refusing\n"),
    (
        "tcp-service.sig",
        "http,v/nginx/$1//,Server: nginx\\/([\\S]+)\nssh,v/OpenSSH/$1//,SSH-2.0-OpenSSH_(\\S+)\n",
    ),
    ("tcp-clients.sig", "http,v/$1///,User-Agent\\x3a (.*)\\r\n"),
    ("udp-service.sig", "domain,v/DNS///,\\x81\\x80\\x00\\x01\n"),
    ("mac.sig", "02:00:00\tTest # of nobody\n"),
    ("dhcp.fp", "1:64:53,55,255:1,3,6:MSFT 5.0:Windows:7\n"),
    ("mtu.sig", "1500,\"ethernet/modem\"\n"),
];

fn signatures() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in FILES {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn config(signatures: &Path, others: Value) -> Config {
    let mut config = json!({"signatures": signatures});
    config
        .as_object_mut()
        .unwrap()
        .extend(others.as_object().unwrap().clone());
    serde_json::from_value(config).unwrap()
}

fn lines(nf: &Harness<Assets>) -> Vec<String> {
    let answer = nf
        .function()
        .control("history", &json!({}))
        .unwrap()
        .unwrap();
    let lines = answer["lines"].as_array().unwrap();
    lines
        .iter()
        .map(|line| line["line"].as_str().unwrap().to_owned())
        .collect()
}

fn hosts(nf: &Harness<Assets>) -> Vec<Value> {
    let answer = nf.function().control("hosts", &json!({})).unwrap().unwrap();
    answer["hosts"].as_array().unwrap().clone()
}

/// Returns the hosts by address: which slot a new one gets is left to the state.
fn sorted_hosts(nf: &Harness<Assets>) -> Vec<Value> {
    let mut hosts = hosts(nf);
    hosts.sort_by_key(|host| host["address"].to_string());
    hosts
}

#[test]
fn each_kind_of_packet_tells_something_once() {
    let directory = signatures();
    let mut nf = Harness::<Assets>::new(config(directory.path(), json!({}))).unwrap();
    let (client, server) = ((1, 40000), (2, 80));
    let frames = [
        segment(client, server, SYN, b""),
        segment(server, client, SYN | ACK, b""),
        segment(
            client,
            server,
            ACK,
            b"GET / HTTP/1.1\r\nUser-Agent: curl\r\n",
        ),
        segment(
            server,
            client,
            ACK,
            b"HTTP/1.1 200 OK\r\nServer: nginx/1.22\r\n",
        ),
        segment(client, server, FIN | ACK, b""),
        udp((1, 40001), (3, 53), b"question"),
        udp((3, 53), (1, 40001), b"ab\x81\x80\x00\x01\x00"),
        arp_reply(2, 2),
        arp_reply(2, 9),
        advertisement(7),
        discover(66),
    ];
    for _ in 0..2 {
        for frame in &frames {
            assert_eq!(nf.process(0, frame), Output::Sent(1, frame.clone()));
        }
    }
    assert_eq!(
        lines(&nf),
        [
            "10.0.0.1,0,40000,6,SYN,[S4:64:1:60:M1460,S,T,N,W7:.:Linux:2.6:link:ethernet/modem:uptime:0hrs],0,1",
            "10.0.0.2,0,80,6,SYNACK,[S4:64:1:44:M1460:A:Linux:answering:link:ethernet/modem],0,1",
            "10.0.0.1,0,80,6,CLIENT,[http:curl],0,1",
            "10.0.0.2,0,80,6,SERVER,[http:nginx 1.22],0,1",
            "10.0.0.1,0,40000,6,FIN,[512:64:1:40:.:AFN:Linux:leaving],0,1",
            "10.0.0.1,0,53,17,CLIENT,[unknown:@domain],0,1",
            "10.0.0.3,0,53,17,SERVER,[domain:DNS],0,1",
            "10.0.0.2,0,0,0,ARP,[02:00:00:00:00:02,(Test)],0,1",
            "10.0.0.2,0,0,0,ARP,[02:00:00:00:00:09,(Test)],0,1",
            "fe80::7,0,0,58,ND,[02:00:00:00:00:07,(Test)],0,1",
            "10.0.0.66,0,68,17,DHCP,[1:64:53,55,255:1,3,6:.:Windows:7],0,1",
            // The second time, only the address that changed back and again is new.
            "10.0.0.2,0,0,0,ARP,[02:00:00:00:00:02,(Test)],0,1",
            "10.0.0.2,0,0,0,ARP,[02:00:00:00:00:09,(Test)],0,1",
        ]
    );
    let hosts = hosts(&nf);
    let of = |address: &str| {
        hosts
            .iter()
            .find(|host| host["address"] == address)
            .unwrap()
    };
    assert_eq!(of("10.0.0.2")["mac"], "02:00:00:00:00:09");
    assert_eq!(of("10.0.0.2")["services"][0]["application"], "nginx 1.22");
    assert_eq!(of("10.0.0.1")["systems"][0]["way"], "SYN");
    assert_eq!(of("10.0.0.1")["systems"][0]["system"], "Linux 2.6");
    assert_eq!(of("10.0.0.66")["systems"][0]["system"], "Windows 7");
    assert_eq!(nf.counters()["hosts"], hosts.len());
    assert_eq!(nf.counters()["lines"], 13);
}

#[test]
fn a_tap_sends_nothing_and_looks_at_everything() {
    let directory = signatures();
    let tap = config(directory.path(), json!({"tap": true}));
    let mut nf = Harness::<Assets>::new(tap).unwrap().with_ports(1);
    let frame = segment((1, 40000), (2, 80), SYN, b"");
    assert_eq!(nf.process(0, &frame), Output::Dropped("copy inspected"));
    assert_eq!(lines(&nf).len(), 1);
}

/// A generator of pseudo-random numbers (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

fn random_frame(random: &mut Random) -> Vec<u8> {
    let host = random.below(30) as u8;
    let (client, server) = (
        (host, 40000),
        (100 + random.below(5) as u8, [80, 22, 443][random.below(3)]),
    );
    match random.below(10) {
        0 => segment(client, server, SYN, b""),
        1 => segment(server, client, SYN | ACK, b""),
        2 => segment(
            client,
            server,
            ACK,
            b"GET / HTTP/1.1\r\nUser-Agent: curl\r\n",
        ),
        3 => segment(
            server,
            client,
            ACK,
            b"HTTP/1.1 200 OK\r\nServer: nginx/1.22\r\n",
        ),
        4 => segment(server, client, ACK, b"SSH-2.0-OpenSSH_9.2 and more"),
        5 => segment(client, server, FIN | ACK, b""),
        6 => udp((server.0, 53), client, b"ab\x81\x80\x00\x01\x00"),
        7 => arp_reply(host, random.below(3) as u8),
        8 => advertisement(host),
        _ => segment(client, server, ACK, b"nothing that a signature knows"),
    }
}

#[test]
fn moves_at_random_packets_change_no_line_and_no_host() {
    let directory = signatures();
    // A full table of connections forgets by a secret of its own, which differs between the two.
    let with = |hosts: usize, findings: usize| {
        let room = json!({"hosts": hosts, "findings": findings, "connections": 1000, "history_bytes": 8192});
        config(directory.path(), room)
    };
    for (hosts_most, findings_most) in [(100, 400), (8, 12), (3, 400), (20, 3)] {
        let mut still = Harness::<Assets>::new(with(hosts_most, findings_most)).unwrap();
        let mut moved = Harness::<Assets>::new(with(hosts_most, findings_most)).unwrap();
        let (mut random, mut moves) = (Random(7), Random(11));
        for _ in 0..700 {
            let frame = random_frame(&mut random);
            assert_eq!(still.process(0, &frame), moved.process(0, &frame));
            if moves.below(20) == 0 {
                moved = moved.adopting(with(hosts_most, findings_most)).unwrap();
            }
            let forward = random.below(3) as u64 * 400_000_000;
            still.advance(forward);
            moved.advance(forward);
        }
        assert_eq!(lines(&still), lines(&moved));
        assert_eq!(sorted_hosts(&still), sorted_hosts(&moved));
        let counters = still.counters();
        assert!(counters["hosts"].as_u64().unwrap() <= hosts_most as u64);
        assert!(counters["lines"].as_u64().unwrap() > 50, "{counters}");
        let has_room = (hosts_most, findings_most) == (100, 400);
        assert_eq!(counters["hosts_forgotten"] == 0, has_room, "{counters}");
        assert_eq!(counters, moved.counters());
    }
}

#[test]
fn damaged_frames_are_looked_at_without_harm() {
    let directory = signatures();
    let small = json!({"hosts": 50, "findings": 100, "connections": 100, "checks": [
        "syn", "syn-ack", "fin", "rst", "ack", "udp-system", "icmp-system", "tcp-server", "tcp-client", "udp-service", "arp", "neighbours", "dhcp"]});
    let mut nf = Harness::<Assets>::new(config(directory.path(), small)).unwrap();
    let mut random = Random(23);
    for _ in 0..5000 {
        let mut frame = match random.below(8) {
            0 => discover(9),
            _ => random_frame(&mut random),
        };
        for _ in 0..random.below(6) {
            let place = random.below(frame.len());
            frame[place] = random.below(256) as u8;
        }
        frame.truncate(1 + random.below(frame.len()));
        assert_eq!(nf.process(0, &frame), Output::Sent(1, frame.clone()));
    }
    assert!(nf.counters()["lines"].as_u64().unwrap() > 500);
}

#[test]
fn the_history_keeps_the_newest_lines_and_their_numbers() {
    let directory = signatures();
    let small = config(directory.path(), json!({"history_bytes": 4096}));
    let mut nf = Harness::<Assets>::new(small).unwrap();
    for turn in 0..100 {
        nf.process(0, &arp_reply(5, turn));
    }
    let after = |number: u64| {
        let wanted = json!({"after": number, "limit": 1000});
        nf.function().control("history", &wanted).unwrap().unwrap()
    };
    let all = after(0);
    let numbers: Vec<u64> = all["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["number"].as_u64().unwrap())
        .collect();
    assert_eq!(all["last"], 100);
    assert_eq!(numbers.last(), Some(&100));
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
    assert!((30..60).contains(&numbers.len()), "{}", numbers.len());
    assert_eq!(after(98)["lines"].as_array().unwrap().len(), 2);
    assert_eq!(after(100)["lines"], json!([]));
}

#[test]
fn hosts_are_answered_in_pages() {
    let directory = signatures();
    let mut nf = Harness::<Assets>::new(config(directory.path(), json!({}))).unwrap();
    for host in 0..50 {
        nf.process(0, &arp_reply(host, host));
    }
    let mut from = json!(0);
    let mut found = Vec::new();
    while !from.is_null() {
        let wanted = json!({"from": from, "limit": 7});
        let answer = nf.function().control("hosts", &wanted).unwrap().unwrap();
        found.extend(answer["hosts"].as_array().unwrap().clone());
        from = answer["next"].clone();
    }
    assert_eq!(found, hosts(&nf));
    assert_eq!(found.len(), 50);
    let refused = nf
        .function()
        .control("hosts", &json!({"limit": "x"}))
        .unwrap();
    assert_eq!(refused.unwrap_err().code, "arguments");
    assert!(nf.function().control("other", &json!({})).is_none());
}

#[test]
fn lines_go_to_the_log_file_and_a_new_configuration_changes_it() {
    let directory = signatures();
    let log = |name: &str| {
        config(
            directory.path(),
            json!({"log": directory.path().join(name)}),
        )
    };
    let mut nf = Harness::<Assets>::new(log("a.log")).unwrap();
    nf.process(0, &arp_reply(5, 1));
    nf.function().configure(log("b.log")).unwrap();
    nf.process(0, &arp_reply(5, 2));
    let text = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    assert_eq!(
        text("a.log"),
        "10.0.0.5,0,0,0,ARP,[02:00:00:00:00:01,(Test)],0,1\n"
    );
    assert_eq!(
        text("b.log"),
        "10.0.0.5,0,0,0,ARP,[02:00:00:00:00:02,(Test)],0,1\n"
    );
    let no_arp = config(directory.path(), json!({"checks": ["syn"]}));
    nf.function().configure(no_arp).unwrap();
    nf.process(0, &arp_reply(5, 3));
    assert_eq!(lines(&nf).len(), 2);
}

fn refused(config: Config) -> Refusal {
    Harness::<Assets>::new(config).err().unwrap()
}

#[test]
fn refusals_name_the_value_and_what_was_expected() {
    let directory = signatures();
    let here = directory.path();
    for (others, told) in [
        (json!({"hosts": 0}), "hosts: is 0; expected at least 1"),
        (
            json!({"findings": 0}),
            "findings: is 0; expected at least 1",
        ),
        (
            json!({"history_bytes": 9}),
            "history_bytes: is 9; expected at least 4096",
        ),
        (json!({"checks": []}), "checks: is an empty list; expected"),
        (
            json!({"signatures": "/nowhere"}),
            "signatures: /nowhere/tcp-syn.fp: cannot be read",
        ),
        (
            json!({"log": "/nowhere/x.log"}),
            "log: cannot open \"/nowhere/x.log\"",
        ),
    ] {
        let detail = refused(config(here, others)).detail;
        assert!(detail.starts_with(told), "{detail}");
    }
    std::fs::write(here.join("tcp-fin.fp"), "# good\nbad\n").unwrap();
    let detail = refused(config(here, json!({}))).detail;
    assert!(
        detail.contains("tcp-fin.fp: line 2: \"bad\": expected"),
        "{detail}"
    );
}

#[test]
fn state_goes_only_to_an_instance_with_the_same_signatures() {
    let directory = signatures();
    let nf = Harness::<Assets>::new(config(directory.path(), json!({}))).unwrap();
    let other = signatures();
    let changed = "http,v/other///,x\n";
    std::fs::write(other.path().join("tcp-clients.sig"), changed).unwrap();
    assert!(nf.adopting(config(directory.path(), json!({}))).is_ok());
    let refusal = nf.adopting(config(other.path(), json!({}))).err().unwrap();
    assert_eq!(refusal.code, "schema");
    assert!(
        refusal.detail.contains("signature files"),
        "{}",
        refusal.detail
    );
    let refusal = nf
        .function()
        .configure(config(other.path(), json!({})))
        .unwrap_err();
    assert!(
        refusal.detail.starts_with("signatures: the files in"),
        "{}",
        refusal.detail
    );
    let refusal = nf
        .function()
        .configure(config(directory.path(), json!({"hosts": 7})))
        .unwrap_err();
    assert!(
        refusal
            .detail
            .starts_with("hosts: is 4096 and cannot change"),
        "{}",
        refusal.detail
    );
}
