//! A socket that carries lines and descriptors, and never waits.

use std::{
    io::{self, ErrorKind, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use nf_runtime::control::{receive, send, Lines};
use serde::{de::DeserializeOwned, Serialize};

/// Bytes that wait for the socket.
const WAITING: usize = 1 << 20;
/// Bytes that one call receives.
const CHUNK: usize = 1 << 14;
/// Times that one call receives at most.
const CHUNKS: usize = 64;

/// One end of a session's socket.
pub struct Channel {
    stream: UnixStream,
    out: Vec<u8>,
    lines: Lines,
    descriptors: Vec<OwnedFd>,
}

impl Channel {
    /// # Errors
    /// If the socket cannot be made non-blocking.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            out: Vec::new(),
            lines: Lines::default(),
            descriptors: Vec::new(),
        })
    }

    /// Adds a line, which [`flush`](Self::flush) sends.
    pub fn put(&mut self, line: &impl Serialize) {
        // Serialising plain values into memory cannot fail.
        if serde_json::to_writer(&mut self.out, line).is_ok() {
            self.out.push(b'\n');
        }
    }

    /// Sends a line with descriptors beside it.
    ///
    /// # Errors
    /// If the socket does not take it at once, or is lost.
    pub fn send(&mut self, line: &impl Serialize, descriptors: &[OwnedFd]) -> io::Result<()> {
        self.flush()?;
        if !self.out.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        send(&self.stream, &bytes, descriptors)
    }

    /// Sends what the socket takes.
    ///
    /// # Errors
    /// If the other end is gone, or has not read for long.
    pub fn flush(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.out.len() > WAITING {
            return Err(io::Error::new(ErrorKind::TimedOut, "it does not read"));
        }
        Ok(())
    }

    /// Reads what has arrived. False: the other end has closed.
    ///
    /// # Errors
    /// If the socket is lost.
    pub fn fill(&mut self) -> io::Result<bool> {
        let mut chunk = [0; CHUNK];
        // Bytes with descriptors come one message at a time.
        for _ in 0..CHUNKS {
            match receive(&self.stream, &mut chunk) {
                Ok((0, _)) => return Ok(false),
                Ok((count, descriptors)) => {
                    self.lines.push(&chunk[..count]);
                    self.descriptors.extend(descriptors);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The peer closed with unread data; everything that it sent has arrived.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Returns the next line that has arrived.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some(line) = self.lines.next() else {
            return match self.lines.check() {
                Ok(()) => Ok(None),
                Err(refusal) => Err(io::Error::new(ErrorKind::InvalidData, refusal.to_string())),
            };
        };
        Ok(Some(serde_json::from_slice(line)?))
    }

    /// Takes the oldest descriptors that have come: those of the line that has just been read. None: fewer have come.
    pub fn descriptors<const N: usize>(&mut self) -> Option<[OwnedFd; N]> {
        if self.descriptors.len() < N {
            return None;
        }
        let taken: Vec<OwnedFd> = self.descriptors.drain(..N).collect();
        taken.try_into().ok()
    }
}
