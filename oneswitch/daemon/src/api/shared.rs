//! The state that all requests share: the way to the engine, the log levels, the token.

use tokio::sync::{mpsc, oneshot};

use crate::events::{Event, Problem, Reply, Request};
use crate::log::Levels;

/// The shared state of all requests.
#[derive(Debug)]
pub struct Shared {
    pub events: mpsc::UnboundedSender<Event>,
    pub levels: Levels,
    /// The token that clients on TCP must send.
    pub token: Option<String>,
}

impl Shared {
    pub async fn ask(&self, request: Request) -> Reply {
        let (reply, answer) = oneshot::channel();
        // Without an engine `answer` fails, too.
        let _ = self.events.send(Event::Request { request, reply });
        answer.await.unwrap_or_else(|_| Err(Problem::ending()))
    }
}
