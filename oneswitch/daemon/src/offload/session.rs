//! One connection of a writer.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use oneswitch_core::{OffloadError, OffloadEvent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{sleep_until, Instant};

use super::encode::encode;
use super::parse::{parse, Parsed, LINE};
use crate::events::{Event, WriterCommand, WriterHandle};

/// Bytes of one read.
const READ: usize = 4 * LINE;
/// A writer with this many unread bytes is disconnected.
const UNREAD: usize = 8 << 20;
/// A writer that reads nothing for this long is disconnected, if bytes wait.
const STALLED: Duration = Duration::from_secs(5);
/// Time for the last bytes to a writer that is turned away.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub struct Session {
    number: u64,
    events: mpsc::UnboundedSender<Event>,
    commands: mpsc::UnboundedReceiver<WriterCommand>,
    /// The engine's end, until the writer has said hello.
    handle: Option<WriterHandle>,
    unsent: BytesMut,
    /// When bytes were last written, or began to wait.
    wrote: Instant,
    /// Whether the engine has room.
    reads: bool,
    /// When the connection ends even if bytes wait.
    closing: Option<Instant>,
}

impl Session {
    pub fn new(number: u64, events: mpsc::UnboundedSender<Event>) -> Self {
        let (sender, commands) = mpsc::unbounded_channel();
        Self {
            number,
            events,
            commands,
            handle: Some(WriterHandle::new(sender)),
            unsent: BytesMut::new(),
            wrote: Instant::now(),
            reads: true,
            closing: None,
        }
    }

    /// Runs until the connection ends; returns the reason.
    pub async fn run(mut self, stream: UnixStream) -> String {
        let reason = self.pump(stream).await;
        let writer = self.number;
        // The engine may have stopped; then the result does not matter.
        let _ = self.events.send(Event::WriterGone { writer });
        reason
    }

    async fn pump(&mut self, stream: UnixStream) -> String {
        let (mut reader, mut writer) = stream.into_split();
        let mut buffer = BytesMut::with_capacity(READ);
        loop {
            if self.closing.is_some() && self.unsent.is_empty() {
                return "turned away".into();
            }
            if buffer.capacity() - buffer.len() < LINE {
                buffer.reserve(READ);
            }
            let until = self.closing.unwrap_or(self.wrote + STALLED);
            let reads = self.reads && self.closing.is_none();
            tokio::select! {
                biased;
                command = self.commands.recv() => {
                    let mut next = command;
                    if next.is_none() {
                        return "the engine has stopped".into();
                    }
                    while let Some(command) = next {
                        self.obey(command);
                        next = self.commands.try_recv().ok();
                    }
                    if self.unsent.len() > UNREAD {
                        return format!("it does not read: {} bytes are unsent", self.unsent.len());
                    }
                }
                written = writer.write(&self.unsent), if !self.unsent.is_empty() => match written {
                    Ok(0) => return "closed by the writer".into(),
                    Ok(count) => {
                        self.unsent.advance(count);
                        self.wrote = Instant::now();
                    }
                    Err(error) => return error.to_string(),
                },
                read = reader.read_buf(&mut buffer), if reads => match read {
                    Ok(0) => return "closed by the writer".into(),
                    Ok(_) => self.take_in(&mut buffer),
                    Err(error) => return error.to_string(),
                },
                () = sleep_until(until), if !self.unsent.is_empty() => {
                    return format!("it has read nothing for {} seconds", STALLED.as_secs());
                }
            }
        }
    }

    fn obey(&mut self, command: WriterCommand) {
        match command {
            WriterCommand::Resume => self.reads = true,
            WriterCommand::Tell(events) => {
                if self.unsent.is_empty() {
                    self.wrote = Instant::now();
                }
                let mut out = Vec::new();
                let closes = events.iter().any(|event| encode(event, &mut out));
                if self.closing.is_none() {
                    self.unsent.extend_from_slice(&out);
                }
                if closes {
                    self.closing.get_or_insert(Instant::now() + LAST_WORDS);
                }
            }
        }
    }

    /// Hands the complete lines of the buffer to the engine.
    fn take_in(&mut self, buffer: &mut BytesMut) {
        let mut requests = Vec::new();
        let mut trouble = None;
        let mut rest: &[u8] = buffer;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            if let Err(detail) = self.take_line(line, &mut requests) {
                trouble = Some(detail);
                break;
            }
        }
        if trouble.is_none() && rest.len() > LINE {
            let (length, limit) = (rest.len(), LINE);
            trouble = Some(format!(
                "a line of more than {length} bytes; expected at most {limit}"
            ));
        }
        let taken = buffer.len() - rest.len();
        buffer.advance(taken);
        if requests.is_empty() && trouble.is_none() {
            return;
        }
        let trouble = trouble.map(|detail| OffloadError {
            code: "malformed",
            detail,
        });
        if self.handle.is_some() {
            // The engine does not know a writer before its hello.
            return self.obey(WriterCommand::Tell(
                trouble
                    .into_iter()
                    .map(OffloadEvent::Error)
                    .chain([OffloadEvent::Close])
                    .collect(),
            ));
        }
        self.reads = false;
        // Without an engine no more commands arrive either, and `pump` ends.
        let _ = self.events.send(Event::WriterLines {
            writer: self.number,
            requests,
            trouble,
        });
    }

    fn take_line(
        &mut self,
        line: &[u8],
        requests: &mut Vec<oneswitch_core::OffloadRequest>,
    ) -> Result<(), String> {
        if line.len() > LINE {
            let (length, limit) = (line.len(), LINE);
            return Err(format!(
                "a line of {length} bytes; expected at most {limit}"
            ));
        }
        match (parse(line)?, self.handle.is_some()) {
            (Parsed::Hello(hello), true) => {
                if let Some(handle) = self.handle.take() {
                    let writer = self.number;
                    // As above.
                    let _ = self.events.send(Event::Writer {
                        writer,
                        hello,
                        handle,
                    });
                }
                Ok(())
            }
            (Parsed::Hello(hello), false) => Err(format!(
                "a second hello, for port {}; expected one, in the first line",
                hello.port
            )),
            (Parsed::Request(request), true) => {
                Err(format!("{request:?} in the first line; expected hello"))
            }
            (Parsed::Request(request), false) => {
                requests.push(request);
                Ok(())
            }
        }
    }
}
