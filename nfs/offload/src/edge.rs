//! The rules of the server's switches, by way of oneswitchd: a driver over its socket (docs/architecture.md, "Offload").
//!
//! Requests and events are lines of JSON; a write carries many of them. Nothing waits: what the socket does not take now stays in a buffer, and
//! [`Driver::submit`] takes no more than the buffer has room for.

mod lines;

use std::{
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    Capabilities, CounterId, Driver, Event, Listing, Refused, Request, RuleId, Table, Unavailable,
    Writer,
};
use lines::{Answer, Hello};

/// Bytes of requests that wait for the socket.
const WAITING: usize = 1 << 18;
/// The longest line of an answer.
const LINE: usize = 1 << 17;
/// Bytes that one call of `poll` reads at most, so that it ends.
const READ: usize = 1 << 20;
/// oneswitchd takes a writer that sends nothing for three seconds for dead.
const ALIVE: Duration = Duration::from_millis(500);

/// The rules of the server's switches for the virtual ports of a function.
#[derive(Clone, Debug)]
pub struct Edge {
    /// oneswitchd's socket.
    pub socket: PathBuf,
    /// The numbers of the function's virtual ports, in its order.
    pub ports: Vec<u32>,
    /// The ports' owner.
    pub owner: Option<String>,
}

impl Table for Edge {
    fn open(&mut self, writer: Writer, port: usize) -> Result<Box<dyn Driver + Send>, Unavailable> {
        let failed = |error: std::io::Error| {
            Unavailable {
            why: format!(
                "oneswitchd does not answer at {}: {error}; does it run, with `offload` in server.toml?",
                self.socket.display()
            ),
            is_replaced: false,
        }
        };
        let Some(number) = self.ports.get(port).copied() else {
            let why = format!(
                "oneswitchd knows no virtual port of port {port}: the function has {}",
                self.ports.len()
            );
            return Err(Unavailable {
                why,
                is_replaced: true,
            });
        };
        let stream = UnixStream::connect(&self.socket).map_err(failed)?;
        stream.set_nonblocking(true).map_err(failed)?;
        let mut session = Session {
            stream,
            ports: self.ports.clone(),
            out: Vec::new(),
            input: Vec::new(),
            capabilities: None,
            listing: Listing::default(),
            is_listed: false,
            sent: Instant::now(),
        };
        session.put(&Hello::of(writer, number, self.owner.as_deref()));
        session.put_line(b"{\"list\":null}");
        Ok(Box::new(session))
    }
}

/// A connection to oneswitchd.
struct Session {
    stream: UnixStream,
    ports: Vec<u32>,
    out: Vec<u8>,
    input: Vec<u8>,
    capabilities: Option<Capabilities>,
    listing: Listing,
    is_listed: bool,
    sent: Instant,
}

impl Session {
    fn put(&mut self, value: &impl serde::Serialize) {
        // Serialising plain values into memory cannot fail.
        if serde_json::to_writer(&mut self.out, value).is_ok() {
            self.out.push(b'\n');
        }
    }

    fn put_line(&mut self, line: &[u8]) {
        self.out.extend_from_slice(line);
        self.out.push(b'\n');
    }

    fn flush(&mut self) -> Result<(), Unavailable> {
        if self.out.is_empty() && self.sent.elapsed() >= ALIVE {
            self.put_line(b"{\"alive\":null}");
        }
        let mut written = 0;
        while written < self.out.len() {
            match self.stream.write(&self.out[written..]) {
                Ok(0) => return Err(lost("it closed the connection")),
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(&error.to_string())),
            }
        }
        if written > 0 {
            self.out.drain(..written);
            self.sent = Instant::now();
        }
        Ok(())
    }

    /// Reads what has arrived. False: the other end closed the connection.
    fn fill(&mut self) -> Result<bool, Unavailable> {
        let mut chunk = [0; 1 << 14];
        let start = self.input.len();
        while self.input.len() - start < READ {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(false),
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(&error.to_string())),
            }
        }
        Ok(true)
    }

    fn handle(&mut self, answer: Answer, events: &mut Vec<Event>) -> Result<(), Unavailable> {
        match answer {
            Answer::Welcome(welcome) => self.capabilities = Some(welcome.capabilities()),
            Answer::Listed(rules) => {
                let unreadable = || malformed("a listed rule");
                for rule in rules {
                    let rule = rule.listed().ok_or_else(unreadable)?;
                    self.listing.rules.push(rule);
                }
            }
            Answer::ListEnds => self.is_listed = true,
            Answer::Installed(rules) => {
                events.extend(rules.into_iter().map(|rule| Event::Installed(RuleId(rule))));
            }
            Answer::Refused(rules) => {
                for (rule, why) in rules {
                    let why = Refused::ALL.into_iter().find(|known| known.name() == why);
                    let why = why.ok_or_else(|| malformed("a refusal's reason"))?;
                    events.push(Event::Refused(RuleId(rule), why));
                }
            }
            Answer::Counted(counts) => events.extend(
                counts
                    .into_iter()
                    .map(|(rule, packets)| Event::Counted(RuleId(rule), packets)),
            ),
            Answer::Carried(totals) => {
                let totals = totals
                    .into_iter()
                    .map(|(counter, packets, bytes)| (CounterId(counter), packets, bytes));
                if self.is_listed {
                    events.extend(
                        totals.map(|(id, packets, bytes)| Event::Carried(id, packets, bytes)),
                    );
                } else {
                    self.listing.carried.extend(totals);
                }
            }
            Answer::Effective(rules) => {
                events.extend(rules.into_iter().map(|rule| Event::Effective(RuleId(rule))));
            }
            Answer::Reset => events.push(Event::Reset),
            Answer::Error { code, detail } => {
                return Err(Unavailable {
                    is_replaced: code == Refused::StaleWriter.name(),
                    why: format!("oneswitchd refuses: {detail} ({code})"),
                })
            }
        }
        Ok(())
    }
}

impl Driver for Session {
    fn capabilities(&self) -> Option<Capabilities> {
        self.capabilities
    }

    fn submit(&mut self, requests: &[Request]) -> usize {
        let mut taken = 0;
        for request in requests {
            if self.out.len() >= WAITING {
                break;
            }
            let line = lines::Line(*request, &self.ports);
            // Serialising plain values into memory cannot fail.
            if serde_json::to_writer(&mut self.out, &line).is_ok() {
                self.out.push(b'\n');
            }
            taken += 1;
        }
        taken
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), Unavailable> {
        let flushed = self.flush();
        let is_open = self.fill()?;
        let input = std::mem::take(&mut self.input);
        let mut lines = input.split_inclusive(|byte| *byte == b'\n');
        for line in lines.by_ref() {
            if !line.ends_with(b"\n") {
                self.input = line.to_vec();
                break;
            }
            for answer in lines::answers(line).map_err(|why| malformed(&why))? {
                self.handle(answer, events)?;
            }
        }
        if self.input.len() > LINE {
            return Err(malformed("a line that does not end"));
        }
        // An error that the other end has sent says more than the closed connection.
        if !is_open {
            return Err(lost("it closed the connection"));
        }
        flushed
    }

    fn list(&mut self) -> Option<Listing> {
        (self.is_listed && self.capabilities.is_some()).then(|| std::mem::take(&mut self.listing))
    }
}

fn lost(why: &str) -> Unavailable {
    Unavailable {
        why: format!("oneswitchd is lost: {why}"),
        is_replaced: false,
    }
}

fn malformed(what: &str) -> Unavailable {
    lost(&format!(
        "it sent {what}, which cannot be read; are nf and oneswitchd of the same version?"
    ))
}
