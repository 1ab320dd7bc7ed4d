//! Requests in several messages, as Open vSwitch puts them together (`ofpmp_assembler_execute`, lib/ofp-msgs.c).

use crate::controllers::controller::Controller;
use openflow13::flow_monitor::MonitorRequests;
use openflow13::{ErrorCode, Multipart, MultipartRequest};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time that Open vSwitch waits for the next message of a request.
const PATIENCE: Duration = Duration::from_secs(1);
/// Open vSwitch's limit of a request's bytes.
const LIMIT: usize = 4 << 20;

/// The messages so far of a request that another one continues.
#[derive(Debug)]
struct Partial {
    parts: Vec<MultipartRequest>,
    /// The last message, which an error repeats.
    last: Box<[u8]>,
    size: usize,
    deadline: Instant,
}

/// Unfinished requests of a controller, by xid.
#[derive(Debug, Default)]
pub struct Partials(BTreeMap<u32, Partial>);

impl Controller {
    /// Takes a message of a request; returns the request once it is complete.
    ///
    /// # Errors
    /// The answer to a message that does not continue the earlier ones.
    pub fn assemble(
        &mut self,
        xid: u32,
        frame: &[u8],
        message: Multipart<MultipartRequest>,
        now: Instant,
    ) -> Result<Option<MultipartRequest>, ErrorCode> {
        let before = self.partials.0.remove(&xid);
        if before.is_none() && !message.more {
            return Ok(Some(message.body));
        }
        let mut partial = before.unwrap_or(Partial {
            parts: Vec::new(),
            last: Box::default(),
            size: 0,
            deadline: now,
        });
        self.give_back(partial.size);
        let kind = |request: &MultipartRequest| std::mem::discriminant(request);
        let first = partial.parts.first();
        if first.is_some_and(|first| kind(first) != kind(&message.body)) {
            return Err(ErrorCode::BAD_REQUEST_BAD_MULTIPART);
        }
        partial.size += frame.len();
        if partial.size > LIMIT {
            return Err(ErrorCode::BAD_REQUEST_MULTIPART_BUFFER_OVERFLOW);
        }
        partial.parts.push(message.body);
        if !message.more {
            return whole(partial.parts).map(Some);
        }
        partial.last = frame.into();
        partial.deadline = now + PATIENCE;
        self.reserve_bytes(partial.size);
        self.partials.0.insert(xid, partial);
        Ok(None)
    }

    /// Returns when the next unfinished request is given up.
    pub fn next_given_up(&self) -> Option<Instant> {
        self.partials.0.values().map(|p| p.deadline).min()
    }

    /// Gives up requests that nothing has continued for too long; returns their xids and last messages.
    pub fn give_up_partials(&mut self, now: Instant) -> Vec<(u32, Box<[u8]>)> {
        let partials = std::mem::take(&mut self.partials.0);
        let (late, waiting) = partials.into_iter().partition(|(_, p)| p.deadline <= now);
        self.partials.0 = waiting;
        let late: BTreeMap<u32, Partial> = late;
        for partial in late.values() {
            self.give_back(partial.size);
        }
        late.into_iter().map(|(xid, p)| (xid, p.last)).collect()
    }
}

/// Joins the messages of a complete request. Only lists of table features and of flow monitors can have several with a content.
fn whole(parts: Vec<MultipartRequest>) -> Result<MultipartRequest, ErrorCode> {
    use MultipartRequest as Request;
    let mut features = Vec::new();
    let mut monitors: Option<MonitorRequests> = None;
    let mut others = Vec::new();
    for part in parts {
        match part {
            Request::TableFeatures(body) => features.extend_from_slice(&body),
            Request::FlowMonitor(more) => match &mut monitors {
                Some(monitors) => monitors.parts.extend(more.parts),
                None => monitors = Some(more),
            },
            other => others.push(other),
        }
    }
    if let Some(monitors) = monitors {
        return Ok(Request::FlowMonitor(monitors));
    }
    let is_empty = |request: &Request| {
        let empty = [
            Request::Desc,
            Request::Table,
            Request::GroupDesc,
            Request::GroupFeatures,
            Request::MeterFeatures,
            Request::PortDesc,
        ];
        empty.contains(request)
    };
    match others.pop() {
        None => Ok(Request::TableFeatures(features.into())),
        Some(one) if others.is_empty() || is_empty(&one) => Ok(one),
        Some(_) => Err(ErrorCode::BAD_REQUEST_BAD_MULTIPART),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Greeting;

    const FRAME: [u8; 16] = [0; 16];

    fn part(more: bool) -> Multipart<MultipartRequest> {
        let body = MultipartRequest::TableFeatures([1; 8].into());
        Multipart { more, body }
    }

    #[test]
    fn an_unfinished_request_is_given_up_a_second_after_its_last_message() {
        let mut controller = Controller::new(Greeting::CONTROLLER);
        let start = Instant::now();
        let mut send = |more, at| controller.assemble(7, &FRAME, part(more), at);
        assert_eq!(send(true, start), Ok(None));
        assert_eq!(send(true, start + PATIENCE / 2), Ok(None));
        assert_eq!(controller.kept(), 2 * FRAME.len());
        let end = start + PATIENCE / 2 + PATIENCE;
        assert_eq!(controller.next_given_up(), Some(end));
        assert!(controller.give_up_partials(end - PATIENCE / 4).is_empty());
        assert_eq!(controller.give_up_partials(end), [(7, FRAME.into())]);
        assert_eq!((controller.kept(), controller.next_given_up()), (0, None));
    }

    #[test]
    fn lists_of_a_request_are_joined() {
        let mut controller = Controller::new(Greeting::CONTROLLER);
        let now = Instant::now();
        assert_eq!(controller.assemble(7, &FRAME, part(true), now), Ok(None));
        let whole = MultipartRequest::TableFeatures([1; 16].into());
        let answer = controller.assemble(7, &FRAME, part(false), now);
        assert_eq!(answer, Ok(Some(whole)));
        assert_eq!(controller.kept(), 0);
    }
}
