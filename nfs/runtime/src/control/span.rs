//! When a traced request was processed. An instance has no way to a collector of traces, so it tells the client, which has.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{json, Map, Value};

/// The time that a request takes.
pub struct Span {
    /// Since 1970.
    start: Duration,
    began: Instant,
}

impl Span {
    /// Begins if the client traces the request, and takes what says so from the arguments: it is not the verb's.
    pub fn begin(arguments: &mut Map<String, Value>) -> Option<Self> {
        arguments.remove("traceparent")?;
        let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Some(Self {
            start: start.ok()?,
            began: Instant::now(),
        })
    }

    /// Returns what the answer says about it.
    pub fn end(self) -> Value {
        let end = self.start + self.began.elapsed();
        json!({ "start_ns": nanoseconds(self.start), "end_ns": nanoseconds(end) })
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) // in the year 2554
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_traced_requests_are_timed_and_verbs_do_not_see_why() {
        let mut arguments = Map::from_iter([("do".to_owned(), json!("status"))]);
        assert!(Span::begin(&mut arguments).is_none());
        arguments.insert("traceparent".to_owned(), json!("00-1-2-01"));
        let told = Span::begin(&mut arguments).unwrap().end();
        assert!(!arguments.contains_key("traceparent"));
        assert!(told["start_ns"].as_u64().unwrap() <= told["end_ns"].as_u64().unwrap());
    }
}
