//! The verbs of a control socket.

use std::{collections::BTreeMap, os::fd::OwnedFd, sync::Arc};

use serde_json::{json, Map, Value};

use crate::{Instance, NetworkFunction, Refusal};

/// A received request.
pub struct Request {
    pub verb: String,
    /// The whole object, including `do`.
    pub arguments: Map<String, Value>,
    /// The descriptors that came with the line.
    pub descriptors: Vec<OwnedFd>,
}

/// An answer.
#[derive(Default)]
pub struct Reply {
    /// The answer's object.
    pub value: Value,
    /// The descriptors to send with the line.
    pub descriptors: Vec<OwnedFd>,
    /// An action for after the answer was sent.
    pub then: Option<Box<dyn FnOnce()>>,
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }
}

type Handler = Box<dyn Fn(Request) -> Result<Reply, Refusal> + Send + Sync>;

/// The verbs known to a control socket. Requests of one client are sequential, those of several clients concurrent.
#[derive(Default)]
pub struct Verbs {
    handlers: BTreeMap<&'static str, Handler>,
    /// The network function's verbs: "KIND.verb".
    own: Option<(&'static str, Handler)>,
}

impl Verbs {
    /// Returns the verbs of every instance: status, pauses, config, configure, counters, metrics, stop, and the function's own.
    #[must_use]
    pub fn of<N: NetworkFunction>(instance: &Arc<Instance<N>>) -> Self {
        let mut verbs = Self::default();
        let get = || Arc::clone(instance);
        let this = get();
        verbs.add("status", move |_| Ok(this.status().into()));
        let this = get();
        verbs.add("pauses", move |_| Ok(this.pauses().into()));
        let this = get();
        verbs.add("counters", move |_| Ok(this.counters().json().into()));
        let this = get();
        verbs.add("metrics", move |_| {
            Ok(json!({ "text": this.counters().text() }).into())
        });
        let this = get();
        verbs.add("config", move |_| {
            let config = serde_json::to_value(this.config());
            let config = config.map_err(|error| Refusal::new("internal", error.to_string()))?;
            Ok(json!({ "config": config }).into())
        });
        let this = get();
        verbs.add("configure", move |mut request| {
            let config = request.arguments.remove("config");
            let config =
                config.ok_or_else(|| Refusal::new("malformed", "\"config\" is missing"))?;
            let config = serde_json::from_value(config)
                .map_err(|error| Refusal::new("configuration", format!("config: {error}")))?;
            this.configure(config)?;
            Ok(json!({}).into())
        });
        let this = get();
        verbs.add("stop", move |_| {
            this.stop_workers()?;
            let this = Arc::clone(&this);
            Ok(Reply {
                value: json!({}),
                then: Some(Box::new(move || this.finish())),
                ..Reply::default()
            })
        });
        let this = get();
        let own = move |request: Request| {
            let verb = request
                .verb
                .split_once('.')
                .map_or("", |(_, verb)| verb)
                .to_owned();
            let answer = this.control(&verb, &Value::Object(request.arguments));
            answer
                .unwrap_or_else(|| Err(unknown(&request.verb)))
                .map(Reply::from)
        };
        verbs.own = Some((N::KIND, Box::new(own)));
        verbs
    }

    /// Adds a verb, replacing one of the same name.
    pub fn add(
        &mut self,
        verb: &'static str,
        handler: impl Fn(Request) -> Result<Reply, Refusal> + Send + Sync + 'static,
    ) {
        self.handlers.insert(verb, Box::new(handler));
    }

    pub(super) fn call(&self, request: Request) -> Result<Reply, Refusal> {
        if let Some(handler) = self.handlers.get(request.verb.as_str()) {
            return handler(request);
        }
        let own = self.own.as_ref().filter(|(kind, _)| {
            request
                .verb
                .split_once('.')
                .is_some_and(|(of, _)| of == *kind)
        });
        match own {
            Some((_, handler)) => handler(request),
            None => {
                let known: Vec<&str> = self.handlers.keys().copied().collect();
                let mut refusal = unknown(&request.verb);
                refusal
                    .detail
                    .push_str(&format!("; expected one of {}", known.join(", ")));
                Err(refusal)
            }
        }
    }
}

fn unknown(verb: &str) -> Refusal {
    let verb: String = verb.chars().take(60).collect();
    Refusal::new("verb-unknown", format!("unknown verb {verb:?}"))
}
