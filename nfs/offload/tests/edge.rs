//! The lines to and from oneswitchd.

#![allow(clippy::unwrap_used)]

use std::{
    io::{BufRead, BufReader, Write},
    net::Ipv4Addr,
    os::unix::net::{UnixListener, UnixStream},
    time::Duration,
};

use nf_offload::{
    CounterId, Direction, Driver, Edge, Event, FlowKey, Listed, Listing, Request, RuleId, Table,
    Target, TargetId, Writer,
};
use serde_json::{json, Value};

/// Opens the table, and returns oneswitchd's end of the connection, too.
fn open(name: &str) -> (Box<dyn Driver + Send>, BufReader<UnixStream>) {
    let file = format!("nf-offload-{}-{name}.sock", std::process::id());
    let socket = std::env::temp_dir().join(file);
    let listener = UnixListener::bind(&socket).unwrap();
    let writer = Writer {
        instance: 0xab,
        epoch: 7,
    };
    let mut edge = Edge {
        socket: socket.clone(),
        ports: vec![1000, 1001],
        owner: None,
    };
    let driver = edge.open(writer, 0).unwrap();
    let (stream, _) = listener.accept().unwrap();
    std::fs::remove_file(socket).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    (driver, BufReader::new(stream))
}

fn flow() -> FlowKey {
    let address = |last| Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped().octets();
    FlowKey {
        source: address(1),
        destination: address(9),
        source_port: 1234,
        destination_port: 80,
        protocol: 6,
    }
}

#[test]
fn a_request_is_a_line() {
    let (mut driver, mut oneswitchd) = open("requests");
    let rule = RuleId(7 << 40);
    let requests = [
        Request::Install(rule, flow(), TargetId(2), CounterId(5), Direction::ToClient),
        Request::Remove(rule),
        Request::DropTarget(TargetId(2)),
        Request::PutTarget(TargetId(3), Target::Pass { port: 1 }),
        Request::PutTarget(TargetId(4), Target::Deny),
    ];
    assert_eq!(driver.submit(&requests), 5);
    driver.poll(&mut Vec::new()).unwrap();
    let instance = "000000000000000000000000000000ab";
    let install = json!([
        7_u64 << 40,
        "tcp",
        "10.0.0.1",
        1234,
        "10.0.0.9",
        80,
        2,
        "destination",
        5
    ]);
    for expected in [
        json!({"hello": {"port": 1000, "owner": null, "instance": instance, "epoch": 7}}),
        json!({ "list": null }),
        json!({ "install": install }),
        json!({"remove": 7_u64 << 40}),
        json!({"drop": 2}),
        json!({"pass": [3, 1001]}),
        json!({"deny": 4}),
    ] {
        let mut line = String::new();
        oneswitchd.read_line(&mut line).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), expected);
    }
}

#[test]
fn totals_are_listed_until_the_listing_ends_and_events_from_then_on() {
    let (mut driver, mut oneswitchd) = open("totals");
    let welcome = json!({"flows": 10, "targets": 10, "installs_per_s": 1, "effective_ms": 2000, "ipv4": true, "ipv6": true,
                         "leaves_ends": true, "source": true, "destination": true, "vxlan": false, "counts": "exact"});
    let listed = json!([[8, "tcp", "10.0.0.1", 1234, "10.0.0.9", 80, 2, 3]]);
    for line in [
        json!({ "welcome": welcome }),
        json!({"carried": [[0, 5, 500]]}),
        json!({"carried": [[0, 6, 600], [3, 1, 100]]}),
        json!({"listed": listed, "more": false}),
    ] {
        writeln!(oneswitchd.get_mut(), "{line}").unwrap();
    }
    let mut events = Vec::new();
    assert_eq!(driver.list(), None);
    driver.poll(&mut events).unwrap();
    assert_eq!(events, []);
    for line in [
        json!({"carried": [[0, 8, 800]]}),
        json!({"counted": [[8, 2]]}),
        json!({"effective": [8], "carried": [[3, 4, 400]]}),
    ] {
        writeln!(oneswitchd.get_mut(), "{line}").unwrap();
    }
    driver.poll(&mut events).unwrap();
    let expected = [
        Event::Carried(CounterId(0), 8, 800),
        Event::Counted(RuleId(8), 2),
        Event::Carried(CounterId(3), 4, 400),
        Event::Effective(RuleId(8)),
    ];
    assert_eq!(events, expected);
    let rule = Listed {
        rule: RuleId(8),
        flow: flow(),
        target: TargetId(2),
        counter: CounterId(3),
    };
    let (zero, three) = (CounterId(0), CounterId(3));
    let listing = Listing {
        rules: vec![rule],
        carried: vec![(zero, 5, 500), (zero, 6, 600), (three, 1, 100)],
    };
    assert_eq!(driver.list(), Some(listing));
}
