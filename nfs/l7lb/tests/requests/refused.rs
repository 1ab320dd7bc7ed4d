//! Configurations that are refused: the error names the value, and what was expected.

use nf_l7lb::{Config, L7lb};
use nf_runtime::testing::Harness;
use serde_json::{json, Value};

use crate::peers;

/// Sets a value in a configuration that is right, and returns the error.
fn refusal(pointer: &str, value: Value) -> String {
    let mut config = serde_json::to_value(peers::config(json!({}))).unwrap();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    config.pointer_mut(parent).unwrap()[key] = value;
    let config: Config = serde_json::from_value(config).unwrap();
    Harness::<L7lb>::new(config).err().unwrap().to_string()
}

#[test]
fn errors_name_the_value_and_what_was_expected() {
    let route = |more: Value| {
        let mut route = json!({"name": "x"});
        route
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!([route])
    };
    for (pointer, value, expected) in [
        (
            "/limits/head",
            json!(399),
            ["limits.head", "is 399; expected 400 to 65536"],
        ),
        (
            "/limits/routes",
            json!(2),
            ["limits.routes", "is 2; the listeners have 3"],
        ),
        (
            "/log",
            json!({"path": "x", "sample": 1.5}),
            ["log.sample", "is 1.5; expected a share from 0 to 1"],
        ),
        (
            "/pools/0/sticky",
            json!({}),
            ["pools[0].sticky", "exactly one of cookie and header"],
        ),
        (
            "/pools/0/sticky",
            json!({"cookie": "a b"}),
            ["pools[0].sticky.cookie", "\"a b\"; expected letters"],
        ),
        (
            "/pools/0/sticky",
            json!({"header": ""}),
            ["pools[0].sticky.header", "empty"],
        ),
        (
            "/pools/0/proxy_protocol",
            json!(3),
            ["pools[0].proxy_protocol", "is 3; expected 1 or 2"],
        ),
        (
            "/listeners/0/add_to_answers",
            json!(["x"]),
            [
                "listeners[0].add_to_answers[0]",
                "\"x\" is not a header line",
            ],
        ),
        (
            "/listeners/0/add",
            json!(["A: b\r\nC: d"]),
            ["listeners[0].add[0]", "not a header line"],
        ),
        (
            "/listeners/0/add",
            json!(["content-length: 5"]),
            [
                "listeners[0].add[0]",
                "\"content-length: 5\" would change how the message is read",
            ],
        ),
        (
            "/listeners/0/add",
            json!(["Host: other"]),
            [
                "listeners[0].add[0]",
                "would change how the message is read",
            ],
        ),
        (
            "/listeners/0/routes",
            route(json!({})),
            [
                "listeners[0].routes[0]",
                "exactly one of pool, redirect and answer",
            ],
        ),
        (
            "/listeners/0/routes",
            route(json!({"pool": "c"})),
            ["routes[0].pool", "\"c\" does not exist; the pools are a, b"],
        ),
        (
            "/listeners/0/routes",
            route(json!({"pool": "a", "sni": ["x"]})),
            ["routes[0].sni", "mode = \"tls-passthrough\""],
        ),
        (
            "/listeners/0/routes",
            route(json!({"pool": "a", "host": ["*.example.org", "[fd00::1]", "a.*.org"]})),
            ["routes[0].host[2]", "\"a.*.org\"; expected a name"],
        ),
        (
            "/listeners/0/routes",
            route(json!({"pool": "a", "host": ["example.org:80"]})),
            ["routes[0].host[0]", "\"example.org:80\"; expected a name"],
        ),
        (
            "/listeners/0/routes",
            route(json!({"pool": "a", "host": [""]})),
            ["routes[0].host[0]", "\"\"; expected a name"],
        ),
        (
            "/listeners/0/routes",
            route(json!({"pool": "a", "path": "api"})),
            ["routes[0].path", "\"api\" does not begin with /"],
        ),
        (
            "/listeners/0/routes",
            route(json!({"pool": "a", "path": "/api/*"})),
            ["routes[0].path", "\"/api/*\" ends with /*"],
        ),
        (
            "/listeners/0/routes",
            route(json!({"pool": "a", "path": "/api?x=1"})),
            [
                "routes[0].path",
                "\"/api?x=1\"; expected a path as it is sent",
            ],
        ),
        (
            "/listeners/0/routes",
            route(json!({"pool": "a", "method": ["GET", "post"]})),
            [
                "routes[0].method[1]",
                "\"post\"; expected a method in capitals",
            ],
        ),
        (
            "/listeners/0/routes",
            route(json!({"pool": "a", "headers": [{"name": "X-Beta:"}]})),
            [
                "routes[0].headers[0].name",
                "\"X-Beta:\"; expected the name",
            ],
        ),
        (
            "/listeners/0/routes",
            route(json!({"redirect": {"status": 301, "location": ""}})),
            ["routes[0].redirect.location", "is empty"],
        ),
        (
            "/listeners/0/address",
            json!("127.0.0.1"),
            ["listeners[0].address", "a loopback address"],
        ),
        (
            "/listeners/0/address",
            json!("10.1.0.2"),
            ["listeners[0].address", "an interface's own address"],
        ),
        (
            "/pools/0/backends/0/address",
            json!("10.0.0.100"),
            ["pools[0].backends[0].address", "is the address of VIP"],
        ),
        (
            "/pools/0/backends/0/address",
            json!("fd00::1"),
            [
                "pools[0].backends[0].address",
                "no interface has an IPv6 address",
            ],
        ),
        (
            "/timeouts/answer",
            json!("0s"),
            ["timeouts.answer", "is 0s; expected more"],
        ),
        (
            "/listeners/0/mode",
            json!("tls-passthrough"),
            ["listeners[0].forwarded_for", "needs HTTP"],
        ),
    ] {
        let text = refusal(pointer, value);
        for part in expected {
            assert!(text.contains(part), "{pointer}: {text:?} lacks {part:?}");
        }
    }
}

#[test]
fn names_of_routes_are_unique_within_a_listener() {
    let routes = json!([{"name": "x", "pool": "a"}, {"name": "x", "pool": "b"}]);
    let text = refusal("/listeners/0/routes", routes);
    assert!(
        text.contains("listeners[0].routes[1].name") && text.contains("there twice"),
        "{text}"
    );
}

#[test]
fn passing_tls_reads_nothing_but_the_name() {
    let listener = |route: Value| json!([{"name": "t", "address": "10.0.0.100", "port": 443, "mode": "tls-passthrough", "routes": [route]}]);
    for (route, name) in [
        (json!({"name": "x", "pool": "a", "host": ["h"]}), "host"),
        (json!({"name": "x", "pool": "a", "path": "/x"}), "path"),
        (
            json!({"name": "x", "pool": "a", "method": ["GET"]}),
            "method",
        ),
        (json!({"name": "x", "answer": {"status": 200}}), "answer"),
        (
            json!({"name": "x", "redirect": {"status": 301, "location": "/"}}),
            "redirect",
        ),
    ] {
        let text = refusal("/listeners", listener(route));
        assert!(
            text.contains(&format!("listeners[0].routes[0].{name}")),
            "{text}"
        );
    }
}
