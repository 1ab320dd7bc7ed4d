//! The status of an instance.

use serde_json::{json, Map, Value};

use super::{ports::PortStatus, Instance};
use crate::{
    worker::{common, Pause, Sums},
    CounterSink, NetworkFunction,
};

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
            let offloaded = loaded.function.offloaded();
            if !offloaded.is_null() {
                put("offload", offloaded);
            }
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
