//! The socket of writers: network functions that let `edge` carry their flows (docs/architecture.md, "Offload").
//!
//! One JSON object per line each way. A session hands the complete lines of a read to the engine at once and reads on when the engine has
//! room; the engine's events are written together.

mod encode;
mod parse;
mod session;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, Semaphore};
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::events::Event;
use crate::stream::{bind_unix, SocketFile};
use encode::error_line;

/// The most clients at a time.
const CLIENTS: usize = 64;

/// The listening socket.
pub struct Server {
    listener: UnixListener,
    _file: SocketFile,
    events: mpsc::UnboundedSender<Event>,
}

impl Server {
    /// # Errors
    /// The reason why it cannot listen.
    pub fn bind(path: &Path, events: mpsc::UnboundedSender<Event>) -> Result<Self, String> {
        let (listener, file) = bind_unix(path, 0o600)?;
        Ok(Self {
            listener,
            _file: file,
            events,
        })
    }

    /// Serves writers until the process ends.
    pub async fn run(self) {
        let places = Arc::new(Semaphore::new(CLIENTS));
        let numbers = AtomicU64::new(0);
        loop {
            let mut stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(target: "offload", "cannot accept a connection: {error}");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                let detail = format!(
                    "{CLIENTS} clients are connected; expected that one of them disconnects first"
                );
                // A few bytes always fit into a new socket.
                let _ = stream
                    .write_all(&error_line("too-many-clients", &detail))
                    .await;
                continue;
            };
            let number = numbers.fetch_add(1, Ordering::Relaxed) + 1;
            let events = self.events.clone();
            tokio::spawn(async move {
                let reason = session::Session::new(number, events).run(stream).await;
                debug!(target: "offload", "writer {number} disconnected: {reason}");
                drop(place);
            });
        }
    }
}
