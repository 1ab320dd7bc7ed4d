//! Heads as the function sends them on: of requests and of answers, with lines added and removed.

use std::{fmt::Arguments, io::Write};

use nf_http::{rewrite, Edit, Head, Request};

use crate::{pass::Pass, record::Connection, snapshot::Listener};

/// Lines that the answer to the present request gets: bits of `Connection::edits`.
pub mod edits {
    /// Those of the listener.
    pub const LINES: u8 = 1;
    /// The cookie that names the backend.
    pub const COOKIE: u8 = 2;
    /// `Connection: close`, for a client that leaves.
    pub const CLOSE: u8 = 4;
}

/// The most bytes by which a head grows, apart from the listener's lines.
const GROWTH: usize = 512;

/// The edits of one head.
struct Edits<'a> {
    list: [Edit<'a>; 8],
    count: usize,
}

impl<'a> Edits<'a> {
    const fn new() -> Self {
        Self {
            list: [Edit::Remove(""); 8],
            count: 0,
        }
    }

    fn push(&mut self, edit: Edit<'a>) {
        if let Some(slot) = self.list.get_mut(self.count) {
            *slot = edit;
            self.count += 1;
        }
    }

    /// Writes the edited head; returns its length.
    fn write(&self, head: &Head<'_>, more: usize, out: &mut Vec<u8>) -> Option<usize> {
        out.resize(head.bytes().len() + more + GROWTH, 0);
        rewrite(head, &self.list[..self.count], out).ok()
    }
}

/// Formats a short value without allocation.
fn format<'a>(buffer: &'a mut [u8], value: Arguments<'_>) -> &'a [u8] {
    let room = buffer.len();
    let mut rest = &mut *buffer;
    let _ = rest.write_fmt(value);
    let length = room - rest.len();
    &buffer[..length]
}

impl Pass<'_> {
    /// Writes the head of a request with the listener's lines into the scratch buffer; returns its length.
    pub(crate) fn edit_request(
        &mut self,
        connection: &Connection,
        listener: &Listener,
        request: &Request<'_>,
        is_last: bool,
    ) -> Option<usize> {
        let (mut address, mut number) = ([0; 48], [0; 24]);
        let mut edits = Edits::new();
        if listener.forwarded_for {
            let client = connection.peer.ip();
            let value = format(&mut address, format_args!("{client}"));
            edits.push(Edit::Add("X-Forwarded-For", value));
        }
        if listener.request_id {
            let port = connection.client.source_port;
            let value = format(&mut number, format_args!("{:016x}{port:08x}", self.now()));
            // Some servers read both spellings as one field.
            edits.push(Edit::Remove("X-Request-Id"));
            edits.push(Edit::Remove("X_Request_Id"));
            edits.push(Edit::Add("X-Request-Id", value));
        }
        if is_last && request.upgrade.is_none() {
            edits.push(Edit::Remove("Connection"));
            edits.push(Edit::Add("Connection", b"close"));
        }
        if connection.leaves != 0 {
            edits.push(Edit::Remove("Connection"));
        }
        edits.push(Edit::AddLines(&listener.add));
        edits.write(&request.head, listener.add.len(), &mut self.scratch.output)
    }

    /// Writes the head of a backend's answer with the lines that it gets into the scratch buffer; returns its length.
    pub(crate) fn edit_answer(
        &mut self,
        connection: &Connection,
        head: &Head<'_>,
    ) -> Option<usize> {
        let snapshot = self.snapshot;
        let mut cookie = [0; 256];
        let mut edits = Edits::new();
        let mut more = 0;
        if connection.edits & edits::COOKIE != 0 {
            let backend = connection.leg().and_then(|leg| snapshot.backend(leg.row));
            let name = backend.and_then(|backend| snapshot.cookie(backend.pool));
            if let (Some(backend), Some(name)) = (backend, name) {
                let id = backend.key;
                let value = format_args!("{name}={id:016x}; Path=/; HttpOnly");
                edits.push(Edit::Add("Set-Cookie", format(&mut cookie, value)));
            }
        }
        if connection.edits & edits::CLOSE != 0 {
            edits.push(Edit::Remove("Connection"));
            edits.push(Edit::Remove("Keep-Alive"));
            edits.push(Edit::Add("Connection", b"close"));
        }
        let listener = snapshot.listener_of(connection);
        if let Some(listener) = listener.filter(|_| connection.edits & edits::LINES != 0) {
            edits.push(Edit::AddLines(&listener.add_to_answers));
            more = listener.add_to_answers.len();
        }
        edits.write(head, more, &mut self.scratch.output)
    }
}
