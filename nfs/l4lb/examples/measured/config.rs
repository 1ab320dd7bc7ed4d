//! A configuration of the load balancer with all its features.

use serde_json::{json, Value};

/// The VIPs that the clients' packets go to: 192.0.2.0 and the following ones.
pub const VIPS: u16 = 16;

/// Returns a configuration with VIPs of every mode, IPv6, health checks and counters, for one port.
pub fn config(connections: usize, half_open: u32) -> Value {
    let mut neighbours = vec![json!({"address": "10.0.0.1", "mac": "02:aa:00:00:00:01"})];
    let backends: Vec<Value> = (0..32)
        .map(|index| {
            let address = format!("10.0.1.{index}");
            neighbours
                .push(json!({"address": address, "mac": format!("02:bb:00:00:00:{index:02x}")}));
            json!({"name": format!("web{index}"), "address": address, "weight": 1 + index % 3})
        })
        .collect();
    let mut vips: Vec<Value> = (0..VIPS)
        .map(|index| {
            json!({"name": format!("vip{index}"), "address": format!("192.0.2.{index}"), "port": 80, "protocol": "tcp",
                "mode": "ipip", "half_open_limit": half_open, "health": {"kind": "tcp", "interval": "600m", "timeout": "600m"}, "backends": backends})
        })
        .collect();
    let few = &backends[..4];
    vips.push(json!({"name": "nat", "address": "192.0.2.100", "port": 80, "protocol": "tcp", "mode": "nat", "backends": few}));
    vips.push(json!({"name": "proxied", "address": "192.0.2.101", "port": 81, "protocol": "tcp", "mode": "nat", "snat": true, "proxy_protocol": true, "backends": few}));
    vips.push(json!({"name": "gue", "address": "192.0.2.102", "port": 53, "protocol": "udp", "mode": "gue", "algorithm": "least-loaded", "backends": few}));
    let stations: Vec<Value> = (0..4)
        .map(|index| json!({"name": format!("vm{index}"), "address": format!("10.0.1.{index}"), "inner_mac": format!("02:cc:00:00:00:{index:02x}")}))
        .collect();
    vips.push(json!({"name": "vxlan", "address": "192.0.2.103", "port": 53, "protocol": "udp", "mode": "vxlan", "vni": 5000, "backends": stations}));
    json!({
        "interfaces": [{"addresses": ["10.0.0.2/16"], "gateways": ["10.0.0.1"]}],
        "neighbours": neighbours,
        "tables": {"connections_ipv4": connections, "connections_ipv6": 4096, "backends": 1024, "vips": 64},
        "vips": vips,
    })
}
