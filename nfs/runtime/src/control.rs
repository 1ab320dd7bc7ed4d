//! The control socket: one JSON object per line each way, with file descriptors beside the lines. See `nfs/README.md`, "The control socket".
//!
//! Each client has a thread, and the number of clients is limited. So is each client's cost: the length of a line, the descriptors with it, and
//! the time to read an answer or to send a request.

mod line;
mod socket;
mod span;
mod verbs;

use std::{
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc,
    },
    thread,
    time::Duration,
};

use serde_json::{json, Value};

use crate::Refusal;
use span::Span;

pub use self::line::{parse, Lines, MAX_LINE};
pub use self::socket::{bind, receive, send, MAX_DESCRIPTORS};
pub use self::verbs::{Reply, Request, Verbs};

/// The maximum of concurrent clients; further ones get an error.
const MAX_CLIENTS: usize = 32;
/// The time within which a client must read its answer, or be disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time within which a client must send something, or be disconnected to make room.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A control socket, served until drop.
pub struct Server {
    path: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        // New clients cannot connect; connected ones stay until the process ends.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Serves `verbs` on a socket at this path, which only this user can open.
///
/// # Errors
/// If another process serves it, or it cannot be created.
pub fn serve(path: &Path, verbs: Verbs) -> Result<Server, Refusal> {
    serve_while_busy(path, verbs, IDLE_TIMEOUT)
}

/// Like [`serve`], but with another idle timeout for clients.
///
/// # Errors
/// Those of [`serve`].
pub fn serve_while_busy(path: &Path, verbs: Verbs, idle: Duration) -> Result<Server, Refusal> {
    let listener = bind(path)?;
    let verbs = Arc::new(verbs);
    let clients = Arc::new(AtomicUsize::new(0));
    let accept = move || {
        for client in listener.incoming() {
            match client {
                Ok(client) => welcome(client, idle, &verbs, &clients),
                // Probably out of descriptors, until clients disconnect.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    };
    start("control", accept)?;
    Ok(Server {
        path: path.to_owned(),
    })
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Refusal> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map(drop).map_err(|error| {
        Refusal::new(
            "system",
            format!("cannot start a thread for {name}: {error}"),
        )
    })
}

/// A client's place, freed on drop.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn welcome(client: UnixStream, idle: Duration, verbs: &Arc<Verbs>, clients: &Arc<AtomicUsize>) {
    let before = clients.fetch_add(1, Ordering::Relaxed);
    let place = Place(Arc::clone(clients));
    let limited = client.set_write_timeout(Some(WRITE_TIMEOUT));
    if limited
        .and_then(|()| client.set_read_timeout(Some(idle)))
        .is_err()
    {
        return;
    }
    if before >= MAX_CLIENTS {
        let detail = format!("{MAX_CLIENTS} clients are connected; close one");
        let _ = send(
            &client,
            &answer_line(&Err(Refusal::new("too-many-clients", detail)), None),
            &[],
        );
        return;
    }
    let verbs = Arc::clone(verbs);
    // Without a thread, the client's connection is closed.
    let _ = start("client", move || {
        let _place = place;
        // The client has disconnected, or does not read: the error has no recipient.
        let _ = converse(&client, &verbs);
    });
}

fn converse(client: &UnixStream, verbs: &Verbs) -> io::Result<()> {
    let mut lines = Lines::default();
    let mut descriptors = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (count, mut received) = receive(client, &mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        lines.push(&buffer[..count]);
        // Descriptors belong to the line of the last byte: a line with descriptors is sent by one call.
        let mut complete = lines.complete();
        let ends_here = buffer[..count].ends_with(b"\n");
        descriptors.append(&mut received);
        while let Some(line) = lines.next() {
            complete -= 1;
            let own = if complete == 0 && ends_here {
                std::mem::take(&mut descriptors)
            } else {
                Vec::new()
            };
            let mut span = None;
            let answer = parse(line).and_then(|(verb, mut arguments)| {
                span = Span::begin(&mut arguments);
                if own.len() > MAX_DESCRIPTORS {
                    let detail = format!(
                        "{} file descriptors with one line, expected at most {MAX_DESCRIPTORS}",
                        own.len()
                    );
                    return Err(Refusal::new("malformed", detail));
                }
                verbs.call(Request {
                    verb,
                    arguments,
                    descriptors: own,
                })
            });
            let line = answer_line(&answer, span.map(Span::end));
            let reply = answer.unwrap_or_default();
            send(client, &line, &reply.descriptors)?;
            if let Some(then) = reply.then {
                then();
            }
        }
        if let Err(refusal) = lines.check() {
            // The start of the next line is unknown, so the connection ends.
            return send(client, &answer_line(&Err(refusal), None), &[]);
        }
        if descriptors.len() > MAX_DESCRIPTORS {
            let detail = format!("more than {MAX_DESCRIPTORS} file descriptors with one line");
            return send(
                client,
                &answer_line(&Err(Refusal::new("malformed", detail)), None),
                &[],
            );
        }
    }
}

fn answer_line(answer: &Result<Reply, Refusal>, span: Option<Value>) -> Vec<u8> {
    let mut value = match answer {
        Ok(reply) => json!({ "ok": reply.value }),
        Err(refusal) => json!({ "error": { "code": refusal.code, "detail": refusal.detail } }),
    };
    if let Some(span) = span {
        value["span"] = span;
    }
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}
