//! Bytes to send, collected per destination so that a round needs one write for each.

use crate::api::Destination;
use openflow13::set_xid;

#[derive(Debug, Default)]
pub struct Outbox {
    /// A handful of destinations: a linear search beats hashing.
    buffers: Vec<(Destination, Vec<u8>)>,
}

impl Outbox {
    pub fn put(&mut self, to: Destination, frame: &[u8]) {
        self.buffer(to).extend_from_slice(frame);
    }

    /// Appends a copy of `frame` with another transaction id, and returns the copy for patching.
    pub fn put_with_xid(&mut self, to: Destination, frame: &[u8], xid: u32) -> &mut [u8] {
        let buffer = self.buffer(to);
        let start = buffer.len();
        buffer.extend_from_slice(frame);
        let copy = &mut buffer[start..];
        set_xid(copy, xid);
        copy
    }

    /// Drops the bytes for a disconnected destination.
    pub fn discard(&mut self, to: Destination) {
        self.buffers.retain(|(d, _)| *d != to);
    }

    pub fn take(&mut self) -> Vec<(Destination, Vec<u8>)> {
        std::mem::take(&mut self.buffers)
    }

    pub fn pending(&self, to: Destination) -> usize {
        self.buffers
            .iter()
            .find(|(d, _)| *d == to)
            .map_or(0, |(_, b)| b.len())
    }

    fn buffer(&mut self, to: Destination) -> &mut Vec<u8> {
        let index = match self.buffers.iter().position(|(d, _)| *d == to) {
            Some(index) => index,
            None => {
                self.buffers.push((to, Vec::with_capacity(4096)));
                self.buffers.len() - 1
            }
        };
        &mut self.buffers[index].1
    }
}
