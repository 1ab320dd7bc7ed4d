//! The load balancer's verbs on the control socket, and its counters.

use std::{collections::HashMap, sync::atomic::Ordering};

use nf_balancing::health;
use nf_offload::Direction;
use nf_runtime::{CounterSink, Refusal};
use serde_json::{json, Value};

use crate::{
    balancer::L4lb,
    events::Event,
    snapshot::{Backend, Snapshot, Vip},
    source_nat::LOCAL_PORTS,
    state::{traffic, State},
};

impl L4lb {
    pub(crate) fn answer(&self, verb: &str, arguments: &Value) -> Option<Result<Value, Refusal>> {
        match verb {
            "show" => Some(Ok(self.show())),
            "backends" => Some(self.backends(arguments)),
            "drain" => Some(self.drain(arguments)),
            "full" => Some(Ok(self.full())),
            _ => None,
        }
    }

    fn show(&self) -> Value {
        let snapshot = self.snapshot();
        let vips: Vec<Value> = snapshot
            .vips
            .iter()
            .map(|vip| {
                json!({
                    "name": vip.name,
                    "address": vip.address,
                    "port": vip.port,
                    "protocol": protocol(vip),
                    "mode": vip.mode,
                    "algorithm": vip.algorithm,
                    "backends": vip.backends.len(),
                    "open": vip.open.len(),
                    "connections": self.connections(vip),
                    "half_open": self.state.half_open.get(vip.row),
                })
            })
            .collect();
        json!({ "vips": vips, "tables": tables(self.usage()), "util_plus": self.state.load.util_plus() })
    }

    /// Counts the used entries of each table; it scans all sessions.
    fn usage(&self) -> [Usage; 3] {
        let [ipv4, ipv6] = self.records.connections();
        let sessions = self.records.sessions(self.now.load(Ordering::Relaxed));
        let possible = self.snapshot().config.tables.sessions;
        [
            ("connections_ipv4", ipv4.0, ipv4.1),
            ("connections_ipv6", ipv6.0, ipv6.1),
            ("sessions", sessions, possible),
        ]
        .map(|(table, used, capacity)| Usage {
            table,
            used,
            capacity,
        })
    }

    fn connections(&self, vip: &Vip) -> u64 {
        let numbers = vip.backends.iter().map(|number| usize::from(*number));
        numbers.map(|number| self.state.active.get(number)).sum()
    }

    /// Answers for one VIP, `{"vip": name}`, or for all.
    fn backends(&self, arguments: &Value) -> Result<Value, Refusal> {
        let snapshot = self.snapshot();
        let wanted = arguments.get("vip").and_then(Value::as_str);
        if let Some(name) = wanted {
            find_vip(&snapshot, name)?;
        }
        let chosen = snapshot
            .vips
            .iter()
            .filter(|vip| wanted.is_none_or(|name| vip.name == name));
        let list: Vec<Value> = chosen
            .flat_map(|vip| vip.backends.iter().map(move |number| (vip, *number)))
            .filter_map(|(vip, number)| {
                let backend = snapshot.backend_at(number)?;
                let sum = |column| self.traffic(number.into(), column);
                Some(json!({
                    "vip": vip.name,
                    "name": backend.name,
                    "address": backend.address,
                    "port": backend.port,
                    "weight": backend.weight,
                    "health": health_name(vip, backend),
                    "drained": backend.drained,
                    "open": backend.is_open(),
                    "mac": backend.way.mac().map(|mac| mac.to_string()),
                    "active": self.state.active.get(number.into()),
                    "connections": sum(traffic::CONNECTIONS),
                    "packets": sum(traffic::PACKETS),
                    "bytes": sum(traffic::BYTES),
                }))
            })
            .collect();
        Ok(json!({ "backends": list }))
    }

    /// Answers `{"vip": name, "backend": name, "on": true}`.
    fn drain(&self, arguments: &Value) -> Result<Value, Refusal> {
        let text = |key: &str| {
            arguments.get(key).and_then(Value::as_str).ok_or_else(|| {
                Refusal::new(
                    "malformed",
                    format!("{key}: missing; expected {{\"vip\": NAME, \"backend\": NAME, \"on\": true}}"),
                )
            })
        };
        let (vip_name, backend_name) = (text("vip")?, text("backend")?);
        let on = match arguments.get("on") {
            None => true,
            Some(value) => value.as_bool().ok_or_else(|| {
                Refusal::new("malformed", format!("on: {value}, expected true or false"))
            })?,
        };
        let snapshot = self.snapshot();
        let vip = find_vip(&snapshot, vip_name)?;
        let number = vip
            .backends
            .iter()
            .copied()
            .find(|number| {
                snapshot
                    .backend_at(*number)
                    .is_some_and(|backend| backend.name == backend_name)
            })
            .ok_or_else(|| {
                let names = vip
                    .backends
                    .iter()
                    .filter_map(|number| snapshot.backend_at(*number));
                let names: Vec<&str> = names.map(|backend| backend.name.as_str()).collect();
                Refusal::new(
                    "backend-unknown",
                    format!(
                        "backend: VIP {vip_name:?} has no backend {backend_name:?}; expected one of {}",
                        names.join(", ")
                    ),
                )
            })?;
        drop(snapshot);
        self.set_drained(number, on);
        let active = self.state.active.get(number.into());
        Ok(json!({ "vip": vip_name, "backend": backend_name, "drained": on, "active": active }))
    }

    /// Tells whether it is full, and why.
    fn full(&self) -> Value {
        let usage = self.usage();
        let why = self.why_full(&usage);
        let util = self.state.load.util_plus();
        json!({ "full": !why.is_empty(), "why": why, "util_plus": util, "tables": tables(usage) })
    }

    fn why_full(&self, usage: &[Usage]) -> Vec<String> {
        let snapshot = self.snapshot();
        let limits = &snapshot.config.full;
        let mut why = Vec::new();
        let util = self.state.load.util_plus();
        if util >= limits.utilisation {
            why.push(format!(
                "util+ is {util:.2}, at or above the limit of {}",
                limits.utilisation
            ));
        }
        for Usage {
            table,
            used,
            capacity,
        } in usage
        {
            if *used as f64 >= limits.table * *capacity as f64 {
                why.push(format!(
                    "table {table} has {used} of {capacity} connections, at or above the limit, a share of {}",
                    limits.table
                ));
            }
        }
        for (backend, used) in local_ports(&snapshot, &self.state) {
            if used as f64 >= limits.table * f64::from(LOCAL_PORTS) {
                why.push(format!(
                    "{used} of {LOCAL_PORTS} local ports toward backend {} port {} are taken, at or above the limit, a share of {}",
                    backend.address, backend.port, limits.table
                ));
            }
        }
        for vip in &snapshot.vips {
            let half_open = self.state.half_open.get(vip.row);
            if half_open >= vip.half_open_limit {
                why.push(format!(
                    "VIP {:?} has {half_open} half-open connections, at or above the limit of {}",
                    vip.name, vip.half_open_limit
                ));
            }
        }
        why
    }

    pub(crate) fn report(&self, out: &mut CounterSink) {
        let snapshot = self.snapshot();
        let columns = [
            ("packets", traffic::PACKETS),
            ("bytes", traffic::BYTES),
            ("answers", traffic::ANSWERS),
            ("answer_bytes", traffic::ANSWER_BYTES),
            ("connections", traffic::CONNECTIONS),
        ];
        let rows = self.state.traffic_rows();
        for vip in &snapshot.vips {
            let labels = [("vip", vip.name.as_str())];
            for (name, column) in columns {
                let own = rows.get(&vip.row).into_iter().flatten();
                let rows = own.copied().chain([self.state.gone_row(vip.row)]);
                let sum: u64 = rows.map(|row| self.traffic(row, column)).sum();
                out.counter(&format!("vip_{name}"), &labels, sum);
            }
            out.gauge("vip_active", &labels, self.connections(vip) as f64);
            let half_open = self.state.half_open.get(vip.row);
            out.gauge("vip_half_open", &labels, half_open as f64);
            out.gauge("vip_backends_open", &labels, vip.open.len() as f64);
            self.count_events(out, vip.row, Some(&vip.name));
            for number in &vip.backends {
                let Some(backend) = snapshot.backend_at(*number) else {
                    continue;
                };
                let labels = [
                    ("vip", vip.name.as_str()),
                    ("backend", backend.name.as_str()),
                ];
                for (name, column) in columns {
                    let sum = self.traffic(usize::from(*number), column);
                    out.counter(&format!("backend_{name}"), &labels, sum);
                }
                let active = self.state.active.get(usize::from(*number));
                out.gauge("backend_active", &labels, active as f64);
                out.gauge(
                    "backend_open",
                    &labels,
                    f64::from(u8::from(backend.is_open())),
                );
            }
        }
        self.count_events(out, self.state.vips.len(), None);
        out.gauge("util_plus", &[], self.state.load.util_plus());
        let usage = self.usage();
        let is_full = !self.why_full(&usage).is_empty();
        out.gauge("full", &[], f64::from(u8::from(is_full)));
        let [four, six, sessions] = usage;
        for (version, Usage { used, capacity, .. }) in [("4", four), ("6", six)] {
            let labels = [("version", version)];
            out.gauge("table_used", &labels, used as f64);
            out.gauge("table_capacity", &labels, capacity as f64);
        }
        self.offload.report(out);
        out.gauge("sessions_used", &[], sessions.used as f64);
        out.gauge("sessions_capacity", &[], sessions.capacity as f64);
    }

    /// Returns a counter of a row: of packets that were processed here, and of those that rules carried.
    fn traffic(&self, row: usize, column: usize) -> u64 {
        let processed = self.state.traffic.sum(row, column);
        let (direction, part) = match column {
            traffic::PACKETS => (Direction::ToBackend, 0),
            traffic::BYTES => (Direction::ToBackend, 1),
            traffic::ANSWERS => (Direction::ToClient, 0),
            traffic::ANSWER_BYTES => (Direction::ToClient, 1),
            _ => return processed,
        };
        processed + self.offload.carried(row, direction)[part]
    }

    /// Adds the event counters of one VIP, or those that belong to none.
    fn count_events(&self, out: &mut CounterSink, row: usize, vip: Option<&str>) {
        for event in Event::ALL {
            let sum = self.state.events.sum(row, event as usize);
            if sum > 0 {
                let labels = [("vip", vip.unwrap_or("")), ("event", event.name())];
                let skipped = usize::from(vip.is_none());
                out.counter("events", &labels[skipped..], sum);
            }
        }
    }
}

/// The usage of one table.
struct Usage {
    table: &'static str,
    used: usize,
    capacity: usize,
}

fn tables(usage: [Usage; 3]) -> Value {
    let row = |each: Usage| {
        let numbers = json!({ "used": each.used, "capacity": each.capacity });
        (each.table.to_owned(), numbers)
    };
    Value::Object(usage.into_iter().map(row).collect())
}

/// Lists the endpoints of backends with source NAT, each once, with the number of local ports in use toward it.
fn local_ports<'a>(snapshot: &'a Snapshot, state: &State) -> Vec<(&'a Backend, u64)> {
    let mut ends: HashMap<_, (&Backend, u64)> = HashMap::new();
    let translated = |(_, backend): &(u16, &Backend)| snapshot.vips[backend.vip].snat;
    for (number, backend) in snapshot.in_use().filter(translated) {
        let protocol = snapshot.vips[backend.vip].protocol;
        let end = (backend.address, backend.port, protocol);
        ends.entry(end).or_insert((backend, 0)).1 += state.active.get(number.into());
    }
    let mut ends: Vec<_> = ends.into_values().collect();
    ends.sort_by_key(|(backend, _)| (backend.address, backend.port));
    ends
}

fn find_vip<'a>(snapshot: &'a Snapshot, name: &str) -> Result<&'a Vip, Refusal> {
    snapshot
        .vips
        .iter()
        .find(|vip| vip.name == name)
        .ok_or_else(|| {
            let names: Vec<&str> = snapshot.vips.iter().map(|vip| vip.name.as_str()).collect();
            Refusal::new(
                "vip-unknown",
                format!(
                    "vip: unknown VIP {name:?}; expected one of {}",
                    names.join(", ")
                ),
            )
        })
}

fn protocol(vip: &Vip) -> &'static str {
    if vip.protocol == nf_packet::protocol::TCP {
        "tcp"
    } else {
        "udp"
    }
}

fn health_name(vip: &Vip, backend: &Backend) -> &'static str {
    match (vip.health.is_some(), backend.health) {
        (false, _) => "unchecked",
        (true, health::UP) => "up",
        (true, health::DOWN) => "down",
        (true, _) => "unknown",
    }
}
