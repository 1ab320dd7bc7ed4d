//! Limits: the last accepted value and the first refused one. No table is built, so the largest sizes cost nothing.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::{json, Value};

use super::check;

fn config() -> Value {
    json!({
        "interfaces": [{"addresses": ["10.0.0.2/24", "fd00::2/64"], "gateways": ["10.0.0.1", "fd00::1"]}],
        "neighbours": [{"address": "10.0.0.11", "mac": "02:00:00:00:00:0b"}],
        "tables": {"connections_ipv4": 4096, "connections_ipv6": 4096, "sessions": 1024, "fragments": 256,
                   "neighbours": 256, "vips": 2, "backends": 3},
        "timeouts": {},
        "full": {},
        "offload": {},
        "vips": [vip("web", 80)],
    })
}

fn vip(name: &str, port: u16) -> Value {
    json!({"name": name, "address": "192.0.2.1", "port": port, "protocol": "tcp", "mode": "ipip",
        "health": {"kind": "http"}, "backends": [{"name": "a", "address": "10.0.0.11"}]})
}

/// Returns the error for the usual configuration with one value changed; empty if it is accepted.
fn said(path: &str, value: Value) -> String {
    let mut changed = config();
    let (parent, key) = path.rsplit_once('/').unwrap();
    changed.pointer_mut(parent).unwrap()[key] = value;
    check(&serde_json::from_value(changed).unwrap())
        .map_or_else(|refusal| refusal.to_string(), |_| String::new())
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
fn limits_of_table_sizes() {
    let sizes = [
        ("connections_ipv4", 1 << 28),
        ("connections_ipv6", 1 << 28),
        ("sessions", 1 << 24),
        ("fragments", 1 << 24),
        ("neighbours", 1 << 20),
        ("vips", 65_535),
        ("backends", 65_535),
    ];
    for (name, most) in sizes {
        limit(
            &format!("/tables/{name}"),
            &[json!(most)],
            &[json!(0), json!(most + 1)],
        );
    }
}

#[test]
fn limits_of_vips_and_backends() {
    let vips = |count: u16| (0..count).map(|each| vip(&each.to_string(), 80 + each));
    let two: Vec<Value> = vips(2).collect();
    limit("/vips", &[json!(two)], &[]);
    let three: Vec<Value> = vips(3).collect();
    assert!(said("/vips", json!(three)).contains("vips: 3 of them, but tables.vips allows 2"));
    let backends = |count: u32| -> Value {
        let backend =
            |each| json!({"name": format!("{each}"), "address": format!("10.0.0.{}", 11 + each)});
        (0..count).map(backend).collect()
    };
    limit("/vips/0/backends", &[json!([]), backends(3)], &[]);
    assert!(said("/vips/0/backends", backends(4)).contains("vips: 4 backends"));
    let mut many = config();
    many["tables"]["backends"] = json!(5000);
    many["vips"][0]["backends"] = (0..4095_u32)
        .map(|each| json!({"name": format!("{each}"), "address": format!("10.1.{}.{}", each / 200, 1 + each % 200)}))
        .collect();
    check(&serde_json::from_value(many).unwrap()).unwrap();
}

#[test]
fn limits_of_shares_and_times() {
    for name in ["utilisation", "table"] {
        let path = format!("/full/{name}");
        limit(
            &path,
            &[json!(0.01), json!(1.0)],
            &[json!(0.0), json!(1.01)],
        );
    }
    limit(
        "/offload/begin",
        &[json!(0.3), json!(1.0)],
        &[json!(0.29), json!(1.01)],
    );
    limit(
        "/offload/stop",
        &[json!(0.0), json!(0.5)],
        &[json!(-0.1), json!(0.51)],
    );
    limit("/offload/heavy_packets_per_s", &[json!(0.1)], &[json!(0.0)]);
    limit(
        "/offload/idle",
        &[json!("1s"), json!("3600s")],
        &[json!("500ms"), json!("3601s")],
    );
    for name in ["opening", "established", "closing", "udp"] {
        let path = format!("/timeouts/{name}");
        limit(&path, &[json!("900s")], &[json!("0s"), json!("901s")]);
    }
}

#[test]
fn limits_of_ports_and_names() {
    limit("/vips/0/port", &[json!(1), json!(65_535)], &[json!(0)]);
    limit("/vips/0/gue_port", &[json!(1)], &[json!(0)]);
    let port = "/vips/0/backends/0/port";
    limit(port, &[json!(80)], &[json!(0), json!(81)]);
    let tcp = json!({"kind": "tcp", "path": "", "host": "", "status": []});
    assert_eq!(
        said("/vips/0/health", tcp),
        "",
        "only http uses these options"
    );
}
