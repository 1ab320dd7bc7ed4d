//! Answers on the control socket.

use nf_runtime::Refusal;
use serde::Deserialize;
use serde_json::{json, Value};

use crate::{
    flows::{connection, flag, stage},
    live::Live,
    offload::Offload,
    pass::action,
    state::State,
};

/// The most flows of an answer: it must fit a line of the control socket.
const MOST: usize = 1000;

fn all() -> usize {
    MOST
}

/// The request `flows`: those in slots from `from` on.
#[derive(Deserialize)]
pub struct FlowsWanted {
    #[serde(default)]
    pub from: u32,
    #[serde(default = "all")]
    pub limit: usize,
}

/// Parses a request.
///
/// # Errors
/// If it has a value of another type.
pub fn parsed<T: serde::de::DeserializeOwned>(arguments: &Value) -> Result<T, Refusal> {
    let parsed = serde_json::from_value(arguments.clone());
    parsed.map_err(|error| Refusal::new("arguments", error.to_string()))
}

/// Returns the rules in order with their counters, the default last.
pub fn rules(state: &State, live: &Live, offload: &Offload) -> Value {
    let rules = live.rules.rules.iter().enumerate();
    let mut rows: Vec<Value> = rules
        .map(|(index, rule)| {
            row(
                (state, offload),
                live.row(Some(index)),
                &rule.name,
                rule.action.name(),
            )
        })
        .collect();
    rows.push(row(
        (state, offload),
        live.row(None),
        "default",
        live.rules.default.name(),
    ));
    json!({ "rules": rows })
}

fn row((state, offload): (&State, &Offload), row: u16, name: &str, action: &str) -> Value {
    let counters = state.rows.get(row);
    let [packets, bytes] = offload.carried(row);
    json!({
        "name": name, "action": action, "packets": counters.packets + packets, "bytes": counters.bytes + bytes,
        "connections": counters.connections, "above_rate": counters.above_rate, "undecided": counters.undecided,
    })
}

/// Returns flows, and the slot where to continue; null: these were the last.
pub fn flows(state: &State, live: &Live, wanted: &FlowsWanted) -> Value {
    let most = wanted.limit.clamp(1, MOST);
    let mut flows = Vec::new();
    for slot in wanted.from..state.flows.fresh() {
        if flows.len() >= most {
            return json!({"flows": flows, "next": slot});
        }
        flows.extend(flow(state, live, slot));
    }
    json!({"flows": flows, "next": null})
}

fn flow(state: &State, live: &Live, slot: u32) -> Option<Value> {
    let hot = state.flows.hot(slot);
    if hot.stage == stage::FREE {
        return None;
    }
    let cold = state.flows.cold(slot);
    let (source, source_port) = hot.key.end(hot.client);
    let (destination, destination_port) = hot.key.end(1 - hot.client.min(1));
    let connection = match hot.connection {
        connection::UNANSWERED => "unanswered",
        connection::ESTABLISHED => "established",
        connection::CLOSING => "closing",
        _ => "datagrams",
    };
    let mut answer = json!({
        "protocol": hot.key.protocol, "source": source, "source_port": source_port,
        "destination": destination, "destination_port": destination_port, "vlan": hot.key.vlan,
        "connection": connection, "packets": hot.packets, "bytes": hot.bytes, "inspected_packets": cold.submitted,
    });
    let fields = answer.as_object_mut()?;
    if hot.stage == stage::DECIDED {
        let rule = live
            .by_row(hot.row)
            .map_or("default", |rule| rule.name.as_str());
        fields.insert("rule".into(), json!(rule));
        fields.insert("action".into(), json!(action(hot.action).name()));
        fields.insert("undecided".into(), json!(hot.flags & flag::UNDECIDED != 0));
    } else {
        fields.insert(
            "waits".into(),
            json!(cold.stored.saturating_sub(cold.released)),
        );
    }
    if let Some(known) = state.known(slot, &hot, &cold) {
        fields.insert("application".into(), json!(live.catalogue.name(&known)));
        fields.insert("category".into(), json!(live.catalogue.category(&known)));
        // Hosts are as sensitive here as in the log.
        if live.config.log_hosts && !known.host.is_empty() {
            fields.insert("host".into(), json!(known.host));
        }
    }
    Some(answer)
}
