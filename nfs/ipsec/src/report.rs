//! The report about tunnels: counters, and the answer to `show`. Keys are not in it.

use nf_runtime::CounterSink;
use serde_json::{json, Value};

use crate::{
    keys::{both, inbound, Rows},
    setup::{Age, Life, Setup},
};

/// An association in the report.
struct Told<'a> {
    tunnel: &'a str,
    direction: &'static str,
    life: &'a Life,
    packets: u64,
    bytes: u64,
    /// The number used last, or the highest seen.
    sequence: u64,
    state: &'static str,
}

fn all<'a>(setup: &'a Setup, (outbound, inbound): (&Rows, &Rows), now: u64) -> Vec<Told<'a>> {
    let mut all = Vec::new();
    let counts = |rows: &Rows, row| (rows.get(row, both::PACKETS), rows.get(row, both::BYTES));
    for tunnel in &setup.tunnels {
        let mut tell = |direction, life, found: Option<((u64, u64), u64, &'static str)>| {
            let ((packets, bytes), sequence, state) = found.unwrap_or(((0, 0), 0, "without room"));
            all.push(Told {
                tunnel: &tunnel.config.name,
                direction,
                life,
                packets,
                bytes,
                sequence,
                state,
            });
        };
        for each in &tunnel.outbound {
            let found = each.sequence.get().map(|sequence| {
                let state = each.age(outbound, sequence, now).name();
                (counts(outbound, sequence.row()), sequence.taken(), state)
            });
            tell("outbound", &each.life, found);
        }
        for each in &tunnel.inbound {
            let found = each.window.get().map(|window| {
                let row = window.row();
                let is_distrusted = inbound.get(row, inbound::DISTRUSTED) != 0;
                let state = match each.life.age(inbound, row, now) {
                    Age::Over => Age::Over.name(),
                    _ if is_distrusted => "distrusted",
                    age => age.name(),
                };
                (
                    counts(inbound, row),
                    inbound.get(row, inbound::HIGHEST),
                    state,
                )
            });
            tell("inbound", &each.life, found);
        }
    }
    all
}

/// Counts packets and bytes of each association.
pub fn counters(setup: &Setup, rows: (&Rows, &Rows), now: u64, out: &mut CounterSink) {
    for told in all(setup, rows, now) {
        let spi = format!("{:#010x}", told.life.spi);
        let labels = [
            ("tunnel", told.tunnel),
            ("direction", told.direction),
            ("spi", &spi),
        ];
        out.counter("association_packets", &labels, told.packets);
        out.counter("association_bytes", &labels, told.bytes);
        let is_usable = matches!(told.state, "active" | "soft");
        out.gauge(
            "association_usable",
            &labels,
            f64::from(u8::from(is_usable)),
        );
    }
    out.gauge(
        "free_keys",
        &[("direction", "outbound")],
        rows.0.free() as f64,
    );
    out.gauge(
        "free_keys",
        &[("direction", "inbound")],
        rows.1.free() as f64,
    );
}

/// Answers `show`.
#[must_use]
pub fn show(setup: &Setup, rows: (&Rows, &Rows), now: u64) -> Value {
    let associations = all(setup, rows, now);
    let tunnels = setup.tunnels.iter().map(|tunnel| {
        let own = associations.iter().filter(|told| told.tunnel == tunnel.config.name);
        let own: Vec<Value> = own
            .map(|told| {
                json!({
                    "direction": told.direction, "spi": told.life.spi, "bits": told.life.cipher.bits(), "esn": told.life.extended,
                    "state": told.state, "packets": told.packets, "bytes": told.bytes, "sequence": told.sequence,
                })
            })
            .collect();
        let peer = tunnel.peer();
        let port = tunnel.udp.then_some(peer.port);
        json!({"name": tunnel.config.name, "peer": peer.address, "port": port, "associations": own})
    });
    json!({"tunnels": tunnels.collect::<Vec<_>>()})
}
