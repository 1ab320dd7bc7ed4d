//! The ports of an instance, as its status shows them.

use std::sync::Arc;

use nf_ports::{Backend, Event, Events, Mac, Port, Queue};
use serde_json::{json, Map, Value};

/// A port without its queues, which belong to the workers.
pub(super) struct PortStatus {
    pub(super) name: String,
    backend: Backend,
    how: String,
    notes: Vec<String>,
    pub(super) mac: Mac,
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
    pub(super) fn is_up(&self) -> bool {
        (self.state)() == "up"
    }

    pub(super) fn json(&self) -> Value {
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
                "{name}: {unbound} frames arrived by receive queues that AF_XDP does not serve: queues added after the start, or whose driver has no room for marks; they take AF_PACKET, \
                 which costs more: restart with as many --workers as it has receive queues, or set their number back to {} with ethtool -L",
                self.events.len()
            ));
        }
        hints
    }

    /// Sums events over the queues.
    pub(super) fn counts(&self) -> Vec<(&'static str, u64)> {
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
