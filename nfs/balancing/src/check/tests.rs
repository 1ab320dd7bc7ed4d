//! Limits: the last accepted value and the first refused one.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::{json, Value};

use super::*;

fn config() -> Value {
    json!({
        "interfaces": [{"addresses": ["10.0.0.2/24", "fd00::2/64"], "gateways": ["10.0.0.1", "fd00::1"]}],
        "neighbours": [{"address": "10.0.0.11", "mac": "02:00:00:00:00:0b"}],
        "health": {"kind": "http"},
    })
}

/// Returns the refusal's text; empty if there is none.
fn text<T>(result: Result<T, Refusal>) -> String {
    result.map_or_else(|refusal| refusal.to_string(), |_| String::new())
}

/// Returns the error for the usual configuration with one value changed; empty if it is accepted.
fn said(path: &str, value: Value) -> String {
    let mut changed = config();
    let (parent, key) = path.rsplit_once('/').unwrap();
    changed.pointer_mut(parent).unwrap()[key] = value;
    let own: Vec<Interface> = serde_json::from_value(changed["interfaces"].take()).unwrap();
    let neighbours: Vec<StaticNeighbour> =
        serde_json::from_value(changed["neighbours"].take()).unwrap();
    let checked = serde_json::from_value(changed["health"].take()).unwrap();
    text(
        interfaces(&own, &neighbours)
            .and_then(|()| Addresses::new(&own, [("192.0.2.1".parse().unwrap(), "web")]))
            .and_then(|known| known.others(&neighbours))
            .and_then(|()| health("health", &checked, "web")),
    )
}

/// Checks values on both sides of a limit.
fn limit(path: &str, taken: &[Value], refused: &[Value]) {
    for value in taken {
        assert_eq!(said(path, value.clone()), "", "{path}: {value}");
    }
    let named = path[1..].replace("/0", "[0]").replace('/', ".");
    for value in refused {
        let said = said(path, value.clone());
        assert!(said.contains(&named), "{path}: {value}: {said:?}");
    }
}

#[test]
fn limits_of_interfaces_and_neighbours() {
    let longest = nf_runtime::MAX_FRAME - 22;
    limit(
        "/interfaces/0/mtu",
        &[json!(1280), json!(longest)],
        &[json!(1279), json!(longest + 1)],
    );
    limit("/neighbours/0/interface", &[json!(0)], &[json!(1)]);
    limit(
        "/neighbours/0/mac",
        &[json!("02:00:00:00:00:00")],
        &[json!("00:00:00:00:00:00"), json!("03:00:00:00:00:00")],
    );
    let gateways = |gateways: Value| said("/interfaces/0/gateways", gateways);
    assert_eq!(gateways(json!(["fd00::1", "10.0.0.1"])), "");
    assert!(gateways(json!(["10.0.0.1", "10.0.0.3"])).contains("gateways[1]: 10.0.0.3 is a second"));
    assert!(gateways(json!(["fd00::1", "fd00::3"])).contains("gateways[1]: fd00::3 is a second"));
}

#[test]
fn addresses_of_the_network_itself_are_refused() {
    let address = |own: &str, backend: &str| {
        let interfaces = [serde_json::from_value(json!({"addresses": [own]})).unwrap()];
        let known = Addresses::new(&interfaces, []).unwrap();
        text(known.is_another_host("backend", backend.parse().unwrap()))
    };
    for (own, first, last) in [
        ("10.0.0.5/30", "10.0.0.4", "10.0.0.7"),
        ("10.0.0.5/8", "10.0.0.0", "10.255.255.255"),
    ] {
        assert!(address(own, first).contains("it is the network address"));
        assert!(address(own, last).contains("it is the broadcast address"));
    }
    for (own, backend) in [
        ("10.0.0.4/31", "10.0.0.5"),
        ("10.0.0.5/30", "10.0.0.6"),
        ("10.0.0.5/30", "10.0.0.8"),
        ("10.0.0.5/32", "10.0.0.4"),
        ("fd00::1/126", "fd00::3"),
        ("fd00::1/127", "fd00::"),
        ("fd00::1/126", "fd00::4"),
    ] {
        assert_eq!(address(own, backend), "", "{own} {backend}");
    }
    assert!(address("fd00::5/126", "fd00::4").contains("subnet-router anycast address"));
}

#[test]
fn limits_of_health_checks() {
    let limit = |key: &str, taken: &[Value], refused: &[Value]| {
        limit(&format!("/health/{key}"), taken, refused);
    };
    limit("port", &[json!(1)], &[json!(0)]);
    limit("rise", &[json!(1)], &[json!(0)]);
    limit("fall", &[json!(1)], &[json!(0)]);
    limit(
        "timeout",
        &[json!("1ms"), json!("5s")],
        &[json!("0s"), json!("5001ms")],
    );
    let path = |length: usize| json!(format!("/{}", "x".repeat(length - 1)));
    limit(
        "path",
        &[path(1), path(512)],
        &[
            path(513),
            json!(""),
            json!("x"),
            json!("/\u{e4}"),
            json!("/\t"),
        ],
    );
    let host = |length: usize| json!("x".repeat(length));
    limit(
        "host",
        &[host(1), host(255)],
        &[host(0), host(256), json!("a b")],
    );
    limit(
        "status",
        &[json!([100, 599])],
        &[json!([]), json!([99]), json!([200, 600])],
    );
}

#[test]
fn limits_of_names() {
    assert_eq!(text(name("a", &"x".repeat(128))), "");
    for wrong in ["", "a\nb", &"x".repeat(129)] {
        assert!(text(name("vips[0].name", wrong)).starts_with("vips[0].name: "));
    }
}

#[test]
fn each_address_has_one_owner() {
    let neighbours = |address: &str| said("/neighbours/0/address", json!(address));
    assert!(
        neighbours("10.0.0.2").contains("an interface's own address (interfaces[0].addresses[0])")
    );
    assert!(neighbours("192.0.2.1").contains("is the address of VIP \"web\""));
    let twice = json!([{"address": "10.0.0.11", "mac": "02:00:00:00:00:0b"}, {"address": "10.0.0.11", "mac": "02:00:00:00:00:0c"}]);
    assert!(said("/neighbours", twice).contains("already the address of neighbours[0]"));
    let gateways = said("/interfaces/0/gateways", json!(["10.0.0.2"]));
    assert!(gateways.contains("interfaces[0].gateways[0]: 10.0.0.2 is an interface's own"));
    let addresses = said(
        "/interfaces/0/addresses",
        json!(["10.0.0.2/24", "fd00::2/64", "10.0.0.2/24"]),
    );
    assert!(
        addresses.contains("interfaces[0].addresses[2]"),
        "{addresses}"
    );
}

#[test]
fn destinations_need_an_interface_and_room() {
    let own: Vec<Interface> = serde_json::from_value(config()["interfaces"].take()).unwrap();
    let known = Addresses::new(&own[..], []).unwrap();
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(text(known.is_reached("backend", ip("203.0.113.1"))), "");
    let four = [serde_json::from_value(json!({"addresses": ["10.0.0.2/24"]})).unwrap()];
    let only = Addresses::new(&four, []).unwrap();
    assert!(text(only.is_reached("backend", ip("fd00::1")))
        .contains("no interface has an IPv6 address"));
    // Two gateways and one destination are on the links.
    let destinations = || {
        [
            ip("10.0.0.11"),
            ip("10.0.0.1"),
            ip("203.0.113.1"),
            ip("10.0.0.11"),
        ]
    };
    assert_eq!(text(known.next_hops_fit(3, destinations())), "");
    assert!(text(known.next_hops_fit(2, destinations()))
        .contains("tables.neighbours: 2, expected at least 3"));
}
