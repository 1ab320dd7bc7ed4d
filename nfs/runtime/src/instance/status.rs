//! The status of an instance.

use std::sync::Arc;

use nf_ports::{Backend, Event, Events, Mac, Port, Queue};
use serde_json::{json, Map, Value};

use super::Instance;
use crate::{
    worker::{common, Pause, Sums},
    CounterSink, NetworkFunction,
};

/// A port without its queues, which belong to the workers.
pub(super) struct PortStatus {
    name: String,
    backend: Backend,
    how: String,
    notes: Vec<String>,
    mac: Mac,
    state: Box<dyn Fn() -> &'static str + Send + Sync>,
    events: Vec<Arc<Events>>,
    overruns: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// Splits ports into their status, and each worker's queue of each port.
pub(super) fn split(
    ports: Vec<Port>,
    workers: usize,
) -> (Vec<PortStatus>, Vec<Vec<Box<dyn Queue>>>) {
    let mut queues: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
    let keep = |port: Port| {
        let each = queues.iter_mut().zip(port.queues);
        each.for_each(|(of_worker, queue)| of_worker.push(queue));
        PortStatus {
            name: port.name,
            backend: port.backend,
            how: port.how,
            notes: port.notes,
            mac: port.mac,
            state: port.state,
            events: port.events,
            overruns: port.overruns,
        }
    };
    let ports = ports.into_iter().map(keep).collect();
    (ports, queues)
}

impl PortStatus {
    fn json(&self) -> Value {
        let mut port = Map::new();
        port.insert("name".into(), json!(self.name));
        port.insert("backend".into(), json!(self.backend.to_string()));
        port.insert("state".into(), json!((self.state)()));
        port.insert("how".into(), json!(self.how));
        let hints = self.hints();
        let notes: Vec<&String> = self.notes.iter().chain(&hints).collect();
        port.insert("notes".into(), json!(notes));
        port.insert("mac".into(), json!(mac_text(&self.mac)));
        for (name, count) in self.counts() {
            port.insert(name.into(), json!(count));
        }
        Value::Object(port)
    }

    /// Lists settings of the interface that cost packets or time, as far as frames have revealed them.
    fn hints(&self) -> Vec<String> {
        let name = &self.name;
        let sum = |event| -> u64 { self.events.iter().map(|events| events.get(event)).sum() };
        let (unsegmented, unbound) = (sum(Event::Unsegmented), sum(Event::Unbound));
        let mut hints = Vec::new();
        if unsegmented > 0 {
            hints.push(format!(
                "{name}: {unsegmented} frames of several segments were dropped: disable offloads at the sender, ethtool -K INTERFACE tso off gso off"
            ));
        }
        if unbound > 0 {
            hints.push(format!(
                "{name}: {unbound} frames arrived by receive queues added after the start, which AF_XDP does not serve; they take AF_PACKET, which costs more: \
                 restart with as many --workers as it has receive queues, or set their number back to {} with ethtool -L",
                self.events.len()
            ));
        }
        hints
    }

    /// Sums events over the queues.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut counts = vec![("receive_overruns", (self.overruns)())];
        for (index, events) in self.events.iter().enumerate() {
            for (place, (name, count)) in events.all().enumerate() {
                if index == 0 {
                    counts.push((name, count));
                } else {
                    counts[1 + place].1 += count;
                }
            }
        }
        counts
    }
}

fn mac_text(mac: &Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

impl<N: NetworkFunction> Instance<N> {
    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        self.totals
            .iter()
            .for_each(|totals| totals.add_to(&mut sums));
        sums
    }

    /// Returns the answer to the verb `status`.
    #[must_use]
    pub fn status(&self) -> Value {
        let sums = self.sums();
        let drops: Map<String, Value> = sums
            .dropped
            .iter()
            .map(|(reason, count)| ((*reason).to_owned(), json!(count)))
            .collect();
        let ports: Vec<Value> = self.ports.iter().map(PortStatus::json).collect();
        let mut status = Map::new();
        let mut put = |name: &str, value: Value| drop(status.insert(name.to_owned(), value));
        put("kind", json!(N::KIND));
        put("version", json!(env!("CARGO_PKG_VERSION")));
        put("schema", json!(N::SCHEMA));
        if let Some(loaded) = self.loaded() {
            put(
                "schema_hash",
                json!(format!("{:016x}", loaded.arena.schema())),
            );
            put("state_bytes", json!(loaded.arena.bytes()));
        }
        put("mode", json!(self.gate.mode().name()));
        put("workers", json!(self.gate.workers()));
        put("ports", json!(ports));
        put("packets_in", json!(sums.received));
        put("packets_out", json!(sums.sent));
        put("packets_dropped", json!(drops));
        put("busy_ns", json!(sums.busy_ns));
        put("batches", json!(sums.batches));
        let notes = self
            .notes
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        status.extend(notes.clone());
        Value::Object(status)
    }

    /// Returns the answer to the verb `pauses`: the instance's age, and when no worker processed a packet for 10 ms or longer, in microseconds since
    /// its start. The newest 256 of each worker are known; one that is not over has no end.
    #[must_use]
    pub fn pauses(&self) -> Value {
        let workers = self.totals.iter().map(|totals| totals.pauses.all());
        let pauses = workers.reduce(|one, other| common(&one, &other));
        let pauses = pauses.unwrap_or_default().into_iter();
        let pauses: Vec<Value> = pauses.map(|Pause { from, to }| json!([from, to])).collect();
        json!({ "age_us": self.began.elapsed().as_micros() as u64, "pauses_us": pauses })
    }

    /// Returns all counters: the runtime's, the ports' and the function's.
    #[must_use]
    pub fn counters(&self) -> CounterSink {
        let mut out = CounterSink::new(N::KIND);
        let sums = self.sums();
        out.counter("packets_in", &[], sums.received);
        out.counter("bytes_in", &[], sums.received_bytes);
        out.counter("packets_out", &[], sums.sent);
        out.counter("bytes_out", &[], sums.sent_bytes);
        for (worker, totals) in self.totals.iter().enumerate() {
            let mut sums = Sums::default();
            totals.add_to(&mut sums);
            out.counter(
                "packets_processed",
                &[("worker", &worker.to_string())],
                sums.processed,
            );
        }
        out.counter("busy_ns", &[], sums.busy_ns);
        out.counter("batches", &[], sums.batches);
        out.counter("packets_kept_or_relayed", &[], sums.stored);
        out.counter("frames_not_emitted", &[], sums.not_emitted);
        for (reason, count) in &sums.dropped {
            out.counter("packets_dropped", &[("reason", reason)], *count);
        }
        for (reason, count) in self.refused.all() {
            out.counter("migration_refused", &[("reason", reason)], count);
        }
        for port in &self.ports {
            for (name, count) in port.counts() {
                out.counter(&format!("port_{name}"), &[("port", &port.name)], count);
            }
        }
        if let Some(loaded) = self.loaded() {
            loaded.function.counters(&self.context(&loaded), &mut out);
        }
        out
    }
}
