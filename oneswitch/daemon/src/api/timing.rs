//! `Server-Timing`: tells a client that traces its request when it was processed. The client has the way to a collector of traces.

use std::time::{Duration, Instant, SystemTime};

use hyper::header::{HeaderMap, HeaderValue};

/// The time that a traced request takes.
pub struct Timing {
    /// Since 1970.
    start: Duration,
    began: Instant,
}

impl Timing {
    pub const HEADER: &'static str = "server-timing";

    /// Begins if the client traces the request: W3C Trace Context, `traceparent` with the flag "sampled".
    pub fn begin(headers: &HeaderMap) -> Option<Self> {
        let flags = headers
            .get("traceparent")?
            .to_str()
            .ok()?
            .split('-')
            .nth(3)?;
        if u8::from_str_radix(flags, 16).ok()? & 1 == 0 {
            return None;
        }
        let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Some(Self {
            start: start.ok()?,
            began: Instant::now(),
        })
    }

    /// Returns the header: W3C Server Timing, `dur` in milliseconds, with a parameter of our own, the start in microseconds since 1970.
    pub fn end(self) -> Option<HeaderValue> {
        let (start, took) = (
            self.start.as_micros(),
            self.began.elapsed().as_secs_f64() * 1e3,
        );
        HeaderValue::try_from(format!("oneswitchd;dur={took:.3};start={start}")).ok()
    }
}
