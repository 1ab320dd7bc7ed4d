//! The REST API: HTTP/1.1 with JSON on a unix socket, or on a loopback address with a token (docs/architecture.md).

mod json;
mod metrics;
mod routes;
mod shared;
#[cfg(test)]
mod tests;
mod timing;
mod wait;

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::config::Config;
use crate::endpoint::ApiEndpoint;
use crate::events::Event;
use crate::log::Levels;
use crate::stream::{bind_unix, SocketFile};
use shared::Shared;

/// Limit for a client to send the head of its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The listening socket of the API.
pub struct Server {
    /// With the port that the system chose.
    pub endpoint: ApiEndpoint,
    socket: Socket,
    shared: Arc<Shared>,
}

enum Socket {
    Unix(
        UnixListener,
        #[allow(dead_code, reason = "removes the file when dropped")] SocketFile,
    ),
    Tcp(TcpListener),
}

impl Server {
    /// # Errors
    /// The reason why it cannot listen, or the fault of the token.
    pub async fn bind(
        config: &Config,
        levels: Levels,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Self, String> {
        let token = config
            .api_token_file
            .as_deref()
            .map(read_token)
            .transpose()?;
        let (endpoint, socket) = match &config.api {
            ApiEndpoint::Unix(path) => {
                let (listener, file) = bind_unix(path, 0o600)?;
                (config.api.clone(), Socket::Unix(listener, file))
            }
            ApiEndpoint::Tcp(address) => {
                let failed = |error| format!("{}: {error}", config.api);
                let listener = TcpListener::bind(address).await.map_err(failed)?;
                (
                    ApiEndpoint::Tcp(listener.local_addr().map_err(failed)?),
                    Socket::Tcp(listener),
                )
            }
        };
        Ok(Self {
            endpoint,
            socket,
            shared: Arc::new(Shared {
                events,
                levels,
                token,
            }),
        })
    }

    /// Serves clients until the process ends.
    pub async fn run(self) {
        loop {
            let accepted = match &self.socket {
                Socket::Unix(listener, _) => listener
                    .accept()
                    .await
                    .map(|(stream, _)| self.spawn(stream)),
                Socket::Tcp(listener) => listener
                    .accept()
                    .await
                    .map(|(stream, _)| self.spawn(stream)),
            };
            if let Err(error) = accepted {
                warn!(target: "api", "{}: cannot accept a connection: {error}", self.endpoint);
                sleep(Duration::from_millis(100)).await;
            }
        }
    }

    fn spawn<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let service = service_fn(|request: hyper::Request<Incoming>| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(routes::respond(&shared, request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                debug!(target: "api", "a client's connection failed: {error}");
            }
        });
    }
}

fn read_token(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let text =
        fs::read_to_string(path).map_err(|error| format!("{shown}: cannot be read: {error}"))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(format!("{shown}: contains no token"));
    }
    Ok(token.to_owned())
}
