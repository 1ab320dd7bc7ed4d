//! Refused configurations and requests: refused whole, with the path, the value and what was expected.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::*;
use nf_l4lb::{Config, L4lb};
use nf_runtime::{testing::Harness, NetworkFunction};
use serde_json::{json, Value};

/// Returns the error for a configuration.
fn refusal(config: Value) -> String {
    match serde_json::from_value::<Config>(config) {
        Err(error) => error.to_string(),
        Ok(config) => Harness::<L4lb>::new(config)
            .map(drop)
            .unwrap_err()
            .to_string(),
    }
}

/// Applies each case's changes to `base`; a case is "path = value | path = value => what the refusal contains".
fn check(base: &Value, cases: &str) {
    for case in cases.trim().lines() {
        let (changes, expected) = case.trim().split_once(" => ").unwrap();
        let mut config = base.clone();
        for change in changes.split(" | ") {
            let (path, value) = change.split_once(" = ").unwrap();
            let value = serde_json::from_str(value).unwrap();
            let (parent, key) = path.rsplit_once('/').unwrap();
            match config.pointer_mut(path) {
                Some(place) => *place = value,
                None => config.pointer_mut(parent).unwrap()[key] = value,
            }
        }
        let said = refusal(config);
        assert!(said.contains(expected), "{case}\n got {said:?}");
    }
}

fn vip_with(key: &str, value: Value) -> Value {
    config(json!([with(vip("ipip", &[11, 12]), key, value)]))
}

/// Another VIP with backend 11, in mode nat and with the same port.
fn other_nat() -> Value {
    with(
        with(vip("nat", &[12, 11]), "address", "192.0.2.2"),
        "name",
        "other",
    )
}

#[test]
fn vips_may_share_a_backend_where_answers_tell_them_apart() {
    let web = || vip("nat", &[11]);
    let other_port = json!([{"name": "web11", "address": "10.0.0.11", "port": 81}]);
    for other in [
        with(other_nat(), "snat", true),
        with(other_nat(), "protocol", "udp"),
        with(other_nat(), "mode", "ipip"),
        with(other_nat(), "backends", other_port),
    ] {
        lb(json!([web(), other]));
    }
}

fn many_backends(count: u32) -> Value {
    let backend = |number: u32| {
        let [.., a, b] = number.to_be_bytes();
        json!({"name": format!("b{number}"), "address": format!("10.1.{a}.{b}")})
    };
    (1..=count).map(backend).collect()
}

#[test]
fn each_address_belongs_to_one_host() {
    let backend = |address: &str| {
        let mut web = vip("ipip", &[11, 12]);
        web["backends"][1]["address"] = json!(address);
        refusal(config(json!([web])))
    };
    for (address, expected) in [
        (
            "10.0.0.2",
            "is an interface's own address (interfaces[0].addresses[0])",
        ),
        (
            "10.0.0.255",
            "not a host address: it is the broadcast address of 10.0.0.2/24",
        ),
        ("10.0.0.0", "it is the network address of 10.0.0.2/24"),
        (
            "fd00::",
            "it is the subnet-router anycast address of fd00::2/64",
        ),
        ("0.0.0.0", "it is unspecified"),
        ("0.1.2.3", "it is in \"this network\""),
        ("127.0.0.1", "it is a loopback address"),
        ("239.1.1.1", "it is a multicast group"),
        ("ff02::1", "it is a multicast group"),
        ("255.255.255.255", "it is the broadcast address"),
        ("::ffff:10.0.0.11", "write it as IPv4"),
        ("192.0.2.1", "192.0.2.1 is the address of VIP \"web\""),
    ] {
        let said = backend(address);
        let start = format!("vips[0].backends[1].address: {address} ");
        assert!(
            said.starts_with(&start) && said.contains(expected),
            "{said}"
        );
    }
    check(
        &config(json!([vip("ipip", &[11])])),
        r#"
/vips/0/address = "10.0.0.255" => vips[0].address: 10.0.0.255 is not a host address
/interfaces/0/addresses/0 = "10.0.0.0/24" => interfaces[0].addresses[0]: 10.0.0.0 is not a host
/interfaces/0/addresses = ["10.0.0.2/24", "fd00::2/64", "10.0.0.2/24"] => interfaces[0].addresses[2]: 10.0.0.2 is an
/interfaces/0/gateways/0 = "10.0.0.2" => interfaces[0].gateways[0]: 10.0.0.2 is an
/interfaces/0/gateways/0 = "10.0.0.255" => interfaces[0].gateways[0]: 10.0.0.255 is not a host
/neighbours/0/address = "10.0.0.2" => neighbours[0].address: 10.0.0.2 is an
/neighbours/2/address = "10.0.0.1" => neighbours[2].address: 10.0.0.1 is already the address of neigh
"#,
    );
    // In networks without such addresses (RFC 3021, RFC 6164), hosts may have all of them.
    let mut small = config(json!([with(
        vip("ipip", &[]),
        "backends",
        json!([{"name": "a", "address": "10.9.0.1"}, {"name": "b", "address": "fd09::"}])
    )]));
    small["interfaces"][0]["addresses"] =
        json!(["10.0.0.2/24", "fd00::2/64", "10.9.0.0/31", "fd09::1/127"]);
    Harness::<L4lb>::new(serde_json::from_value(small).unwrap()).unwrap();
}

#[test]
fn every_next_hop_has_room() {
    // Two gateways and two backends are on the link; the third backend is behind a gateway.
    let mut backends = vip("ipip", &[11, 12]);
    let far = json!({"name": "far", "address": "203.0.113.9"});
    backends["backends"].as_array_mut().unwrap().push(far);
    let mut config = config(json!([backends]));
    config["tables"]["neighbours"] = json!(4);
    Harness::<L4lb>::new(serde_json::from_value(config.clone()).unwrap()).unwrap();
    config["tables"]["neighbours"] = json!(3);
    let said = refusal(config);
    assert!(
        said.starts_with("tables.neighbours: 3, expected at least 4"),
        "{said}"
    );
}

#[test]
fn ports_and_interfaces_match_one_to_one() {
    let one: Config = serde_json::from_value(config(json!([]))).unwrap();
    let mut two = one.clone();
    two.interfaces.push(one.interfaces[0].clone());
    assert!(L4lb::fits(&one, 1).is_ok() && L4lb::fits(&two, 2).is_ok());
    for (config, ports, expected) in [
        (
            &two,
            1,
            "interfaces: 2 of them, but --port is given 1 times",
        ),
        (
            &one,
            2,
            "interfaces: 1 of them, but --port is given 2 times",
        ),
    ] {
        let said = L4lb::fits(config, ports).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn long_and_unprintable_names_are_refused() {
    let name = |name: String| refusal(vip_with("name", json!(name)));
    let said = name("x".repeat(4_000_000));
    assert_eq!(
        said,
        "vips[0].name: 4000000 bytes, expected at most 128: every metric contains it"
    );
    assert!(name("a\nb".into()).contains("vips[0].name: \"a\\nb\" has control characters"));
    let mut long = config(json!([vip("ipip", &[11, 12])]));
    long["vips"][0]["backends"][1]["name"] = json!("y".repeat(129));
    let said = refusal(long);
    assert!(
        said.starts_with("vips[0].backends[1].name: 129 bytes"),
        "{said}"
    );
    // Both are too long: the message contains neither.
    let long = with(vip("ipip", &[]), "name", json!("x".repeat(1000)));
    assert!(refusal(config(json!([long, long]))).len() < 100);
    Harness::<L4lb>::new(serde_json::from_value(vip_with("name", json!("x".repeat(128)))).unwrap())
        .unwrap();
}

#[test]
fn each_refusal_names_the_path_and_the_value() {
    check(
        &config(json!([vip("ipip", &[11]), vip("ipip", &[12])])),
        r#"
/vips/1/port = 81 => vips[1].name: "web" is already the name of vips[0]
/vips/1/name = "other" => vips[1]: tcp port 80 of 192.0.2.1 already belongs to VIP "web"
"#,
    );
    check(
        &config(json!([vip("ipip", &[11, 12])])),
        r#"
/vips/0/port = 0 => vips[0].port: 0
/vips/0/port = 70000 => 70000
/vips/0/address = "10.0.0.2" => an interface's own address
/vips/0/address = "224.0.0.1" => 224.0.0.1 is not a host address
/vips/0/address = "web.example" => invalid IP address
/vips/0/mode = "dsr" => unknown variant `dsr`
/vips/0/algorithm = "random" => unknown variant `random`
/vips/0/weight = 1 => unknown field `weight`
/vips/0/snat = true => vips[0].snat: requires mode nat
/vips/0/proxy_protocol = true => vips[0].proxy_protocol: requires mode nat
/vips/0/backends/1/name = "web11" => vips[0].backends[1].name: "web11" is already the name of backends[0]
/vips/0/backends/1/address = "10.0.0.11" => 10.0.0.11 port 80 already belongs to backend "web11"
/vips/0/backends/1/port = 8080 => vips[0].backends[1].port: 8080, but modes ipip, gue and vxlan without inner_address keep the VIP's port, 80
/vips/0/vni = 7 => vips[0].vni: 7 requires mode vxlan
/vips/0/backends/1/inner_address = "10.8.0.1" => vips[0].backends[1].inner_address: 10.8.0.1 requires mode vxlan
/vips/0/backends/1/inner_mac = "02:00:00:00:00:01" => vips[0].backends[1].inner_mac: "02:00:00:00:00:01" requires mode vxlan
/vips/0/health = {"kind": "http", "interval": 5} => 5 has no unit: write "5s" or "5ms"
/vips/0/health = {"kind": "http", "interval": "5 parsecs"} => not a time with a unit
/vips/0/health = {"kind": "http", "timeout": "6s"} => vips[0].health.timeout: 6s, expected more than 0 and at most the interval, 5s
/vips/0/health = {"kind": "http", "path": "healthy"} => vips[0].health.path: "healthy"
/vips/0/health = {"kind": "http", "path": "/a b"} => vips[0].health.path
/vips/0/health = {"kind": "http", "host": "a\r\nX: y"} => vips[0].health.host
/vips/0/health = {"kind": "http", "status": [20]} => vips[0].health.status: [20]
/vips/0/health = {"kind": "http", "rise": 0} => vips[0].health.rise: 0
/tables = {"backends": 1} => vips: 2 backends, but tables.backends allows 1
/interfaces = [{"addresses": ["fd00::2/64"]}] => no interface has an IPv4 address
"#,
    );
    check(
        &config(json!([vip("nat", &[11, 12])])),
        r#"
/vips/0/backends/1/address = "fd00::11" => is IPv6, the VIP IPv4
/vips/0/backends/1/address = "192.0.2.1" => 192.0.2.1 is the address of VIP
/vips/0/backends/1/weight = -1 => -1
/vips/0/protocol = "udp" | /vips/0/proxy_protocol = true => vips[0].proxy_protocol: requires TCP
/vips/0/protocol = "udp" | /vips/0/health = {"kind": "tcp"} => vips[0].health.port: required with UDP
"#,
    );
    check(
        &config(json!([vip("vxlan", &[11, 12])])),
        r#"
/vips/0/vni = null => vips[0].vni: missing, expected 0 to 16777215
/vips/0/vni = 16777216 => vips[0].vni: 16777216, expected 0 to 16777215
/vips/0/vni = -1 => -1
/vips/0/vni = "5" => string "5", expected u32
/vips/0/backends/1/inner_mac = null => vips[0].backends[1].inner_mac: missing, expected a MAC address
/vips/0/backends/1/inner_mac = "2:3" => vips[0].backends[1].inner_mac: "2:3" is not a MAC address
/vips/0/backends/1/inner_mac = "ff:ff:ff:ff:ff:ff" => vips[0].backends[1].inner_mac: ff:ff:ff:ff:ff:ff is not the address of a station
/vips/0/backends/1/inner_mac = "00:00:00:00:00:00" => vips[0].backends[1].inner_mac: 00:00:00:00:00:00 is not the address of a station
/vips/0/backends/1/port = 8080 => vips[0].backends[1].port: 8080, but modes ipip, gue and vxlan without inner_address keep
/vips/0/backends/1/inner_address = "10.8.0.1" => vips[0].backends[1].inner_address: 10.8.0.1 requires the switch that rewrites alike; add vtep
/vtep = {"addresses": ["10.0.0.2"], "mac": "02:00:00:00:00:01"} => vtep.addresses[0]: 10.0.0.2 is an interface's own address
/vtep = {"addresses": ["10.0.0.3", "10.0.0.4"], "mac": "02:00:00:00:00:01"} => vtep.addresses[1]: 10.0.0.4 is a second IPv4 address
/vtep = {"addresses": ["fd00::3"], "mac": "02:00:00:00:00:01"} => vips[0].backends[0].address: 10.0.0.11 is IPv4, but vtep.addresses has no such address
/vtep = {"addresses": ["10.0.0.3"], "mac": "ff:ff:ff:ff:ff:ff"} => vtep.mac: ff:ff:ff:ff:ff:ff is not the address of a station
/vips/0/snat = true => vips[0].snat: requires mode nat
/vips/0/proxy_protocol = true => vips[0].proxy_protocol: requires mode nat
"#,
    );
    check(
        &config(json!([])),
        r#"
/timeouts = {"established": "30m"} => timeouts.established: 1800s, expected more than 0 and at most 900s
/full = {"table": 90} => full.table: 90, expected a share
/interfaces = [] => interfaces: empty
/interfaces = [{"addresses": ["10.0.0.2"]}] => not an address with a prefix length
/interfaces = [{"addresses": ["10.0.0.2/24"], "gateways": ["10.1.0.1"]}] => interfaces[0].gateways[0]: 10.1.0.1
/interfaces = [{"addresses": ["10.0.0.2/24"], "mtu": 100}] => interfaces[0].mtu: 100
/neighbours = [{"address": "10.0.0.9", "mac": "2:3"}] => neighbours[0].mac
/neighbours = [{"address": "10.0.0.9", "mac": "01:00:00:00:00:01"}] => not the address of a station
/neighbours = [{"address": "10.0.0.9", "mac": "02:00:00:00:00:01", "interface": 3}] => neighbours[0].interface: 3
/tables = {"backends": 70000} => tables.backends: 70000, expected 1 to 65535
"#,
    );
    let shared = config(json!([vip("nat", &[11]), other_nat()]));
    let expected = "vips[1].backends[1]: tcp port 80 of 10.0.0.11 already serves VIP \"web\"";
    check(
        &shared,
        &format!("/vips/1/proxy_protocol = true => {expected}"),
    );
    let mut many = vip_with("backends", many_backends(4096));
    many["tables"] = json!({"backends": 5000});
    let said = refusal(many);
    assert!(
        said.contains("vips[0].backends: 4096 of them, expected at most 4095"),
        "{said}"
    );
}

#[test]
fn a_refused_configuration_changes_nothing() {
    let mut lb = lb(json!([vip("ipip", &[11, 12])]));
    let owned: Vec<u8> = (1..50)
        .map(|port| lb.backend(&Sent::client(port, SYN)))
        .collect();
    let before = lb.counters();
    let duplicate = config(json!([vip("ipip", &[13]), vip("ipip", &[14])]));
    let other_size = with(
        config(json!([vip("ipip", &[11])])),
        "tables",
        json!({"vips": 9}),
    );
    for config in [duplicate, other_size] {
        lb.function()
            .configure(serde_json::from_value(config).unwrap())
            .unwrap_err();
    }
    assert_eq!(lb.counters(), before);
    for (port, backend) in (1..50).zip(owned) {
        assert_eq!(lb.backend(&Sent::client(port, ACK)), backend);
    }
}

#[test]
fn wrong_requests_are_refused() {
    let lb = lb(json!([vip("ipip", &[11])]));
    let refused = |verb: &str, arguments: Value| {
        lb.function()
            .control(verb, &arguments)
            .unwrap()
            .unwrap_err()
    };
    assert_eq!(
        refused("drain", json!({"vip": "nobody", "backend": "web11"})).code,
        "vip-unknown"
    );
    let unknown = refused("drain", json!({"vip": "web", "backend": "web99"}));
    assert_eq!(
        (
            unknown.code,
            unknown.detail.contains("expected one of web11")
        ),
        ("backend-unknown", true)
    );
    assert_eq!(refused("drain", json!({"vip": "web"})).code, "malformed");
    assert_eq!(
        refused("drain", json!({"vip": "web", "backend": "web11", "on": 1})).code,
        "malformed"
    );
    assert_eq!(
        refused("backends", json!({"vip": "nobody"})).code,
        "vip-unknown"
    );
    assert!(lb.function().control("reboot", &json!({})).is_none());
    assert_eq!(lb.ask("show", json!({}))["vips"][0]["name"], "web");
}

#[test]
fn a_configuration_is_written_as_it_was_read() {
    let mut written = vip_with("health", json!({"kind": "http", "interval": "1500ms"}));
    written["timeouts"] = json!({"established": "5m"});
    let config: Config = serde_json::from_value(written).unwrap();
    let text = serde_json::to_value(&config).unwrap();
    assert_eq!(
        (
            &text["timeouts"]["established"],
            &text["vips"][0]["health"]["interval"]
        ),
        (&json!("300s"), &json!("1500ms"))
    );
    assert_eq!(serde_json::from_value::<Config>(text).unwrap(), config);
}
