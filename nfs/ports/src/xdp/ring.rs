//! The four rings of a socket. Each has one writer and one reader, and one of these is the kernel.
//!
//! Thread safety: a ring belongs to one thread. Counters run freely and are reduced to the ring's size on use.

use std::{io, os::fd::BorrowedFd, sync::atomic::Ordering};

use libc::xdp_ring_offset;

use super::memory::Memory;

/// The place of a ring: offset of the mapping, layout, number of entries. An entry is an address, or a descriptor: address, length and options.
pub(super) enum Place {
    Address(u64, xdp_ring_offset, u32),
    Descriptor(u64, xdp_ring_offset, u32),
}

/// A mapped ring.
pub(super) struct Ring {
    memory: Memory,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    entry_bytes: usize,
    size: u32,
}

impl Place {
    pub(super) fn map(self, socket: BorrowedFd<'_>) -> io::Result<Ring> {
        let (offset, layout, size, entry_bytes) = match self {
            Self::Address(offset, layout, size) => (offset, layout, size, 8),
            Self::Descriptor(offset, layout, size) => (offset, layout, size, 16),
        };
        let bytes = layout.desc as usize + size as usize * entry_bytes;
        Ok(Ring {
            memory: Memory::ring(socket, bytes, offset)?,
            producer: layout.producer as usize,
            consumer: layout.consumer as usize,
            flags: layout.flags as usize,
            entries: layout.desc as usize,
            entry_bytes,
            size,
        })
    }
}

impl Ring {
    #[inline]
    fn entry(&self, counter: u32) -> usize {
        self.entries + (counter & (self.size - 1)) as usize * self.entry_bytes
    }
}

/// A ring written by this process.
pub(super) struct Producer {
    ring: Ring,
    /// The number of entries ever written, and the number that the kernel has been told of.
    written: u32,
    submitted: u32,
}

impl Producer {
    pub(super) fn new(ring: Ring) -> Self {
        Self {
            ring,
            written: 0,
            submitted: 0,
        }
    }

    /// Adds an entry; the kernel sees it after [`submit`](Self::submit). There is always room, since a ring has as many entries as there are chunks.
    #[inline]
    pub(super) fn push(&mut self, address: u64, length: u32) {
        let entry = self.ring.entry(self.written);
        self.ring
            .memory
            .word(entry)
            .store(address, Ordering::Relaxed);
        if self.ring.entry_bytes == 16 {
            // struct xdp_desc: the address, then length and options of 32 bits each.
            self.ring
                .memory
                .half(entry + 8)
                .store(length, Ordering::Relaxed);
            self.ring
                .memory
                .half(entry + 12)
                .store(0, Ordering::Relaxed);
        }
        self.written = self.written.wrapping_add(1);
    }

    #[inline]
    pub(super) fn submit(&mut self) {
        if self.submitted != self.written {
            self.ring
                .memory
                .half(self.ring.producer)
                .store(self.written, Ordering::Release);
            self.submitted = self.written;
        }
    }

    /// Tells whether the kernel has taken all entries.
    pub(super) fn is_empty(&self) -> bool {
        self.ring
            .memory
            .half(self.ring.consumer)
            .load(Ordering::Acquire)
            == self.submitted
    }

    /// Tells whether the kernel needs a system call to wake up.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring
            .memory
            .half(self.ring.flags)
            .load(Ordering::Relaxed)
            & libc::XDP_RING_NEED_WAKEUP
            != 0
    }
}

/// A ring written by the kernel.
pub(super) struct Consumer {
    ring: Ring,
    /// The number of entries ever read, and the number written by the kernel at the last look.
    read: u32,
    known: u32,
}

impl Consumer {
    pub(super) fn new(ring: Ring) -> Self {
        Self {
            ring,
            read: 0,
            known: 0,
        }
    }

    /// Returns the next entry: address, and length where the ring has one. The kernel may reuse it after [`release`](Self::release).
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(u64, u32)> {
        if self.read == self.known {
            self.known = self
                .ring
                .memory
                .half(self.ring.producer)
                .load(Ordering::Acquire);
            if self.read == self.known {
                return None;
            }
        }
        let entry = self.ring.entry(self.read);
        let address = self.ring.memory.word(entry).load(Ordering::Relaxed);
        let length = match self.ring.entry_bytes {
            16 => self.ring.memory.half(entry + 8).load(Ordering::Relaxed),
            _ => 0,
        };
        self.read = self.read.wrapping_add(1);
        Some((address, length))
    }

    /// Returns the number of entries ever read.
    pub(super) fn read(&self) -> u32 {
        self.read
    }

    #[inline]
    pub(super) fn release(&mut self) {
        self.ring
            .memory
            .half(self.ring.consumer)
            .store(self.read, Ordering::Release);
    }
}

/// A second mapping of a ring that the kernel writes, for another thread.
pub(super) struct Watcher {
    ring: Ring,
}

impl Watcher {
    pub(super) fn new(ring: Ring) -> Self {
        Self { ring }
    }

    /// Returns the number of entries ever written.
    pub(super) fn get(&self) -> u32 {
        let written = self.ring.memory.half(self.ring.producer);
        written.load(Ordering::Acquire)
    }
}
