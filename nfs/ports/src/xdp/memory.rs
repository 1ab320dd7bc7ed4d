//! Memory that is shared with the kernel: frames, and rings.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64},
};

/// Invariant: `bytes` bytes from `start`, which is page aligned, stay mapped, readable and writable, until drop.
pub(super) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, whichever thread has it; what the kernel does with it is the same everywhere.
unsafe impl Send for Memory {}

impl Memory {
    /// Zeroed memory.
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        Self::map(-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, bytes, 0)
    }

    /// A ring of a socket, all of its pages at once.
    pub(super) fn ring(socket: BorrowedFd<'_>, bytes: usize, offset: u64) -> io::Result<Self> {
        Self::map(
            socket.as_raw_fd(),
            libc::MAP_SHARED | libc::MAP_POPULATE,
            bytes,
            offset,
        )
    }

    fn map(descriptor: i32, flags: i32, bytes: usize, offset: u64) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                flags,
                descriptor,
                offset as libc::off_t,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Self { start, bytes }),
            None => Err(io::Error::other("mapped at address 0")),
        }
    }

    /// Where it is, for the kernel.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// Is a range of bytes inside?
    fn holds(&self, offset: u64, length: usize) -> bool {
        offset
            .checked_add(length as u64)
            .is_some_and(|end| end <= self.bytes as u64)
    }

    /// Copies bytes out. What is outside stays as it was in `into`.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        if self.holds(offset, into.len()) {
            // SAFETY: inside the mapping, by the line above; `into` is other memory. The chunk came out of a ring: the kernel does not write it before it goes back.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    self.start.as_ptr().add(offset as usize),
                    into.as_mut_ptr(),
                    into.len(),
                )
            };
        }
    }

    /// Copies bytes in; not, where they would not be inside.
    pub(super) fn write(&mut self, offset: u64, from: &[u8]) {
        if self.holds(offset, from.len()) {
            // SAFETY: as in `read`; the kernel does not look at the chunk before it goes into a ring.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    from.as_ptr(),
                    self.start.as_ptr().add(offset as usize),
                    from.len(),
                )
            };
        }
    }

    /// A counter of a ring. `offset` is a multiple of 4 inside.
    #[inline]
    pub(super) fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset % 4 == 0 && self.holds(offset as u64, 4));
        // SAFETY: inside and aligned, by the line above; the kernel reads and writes it atomically as well.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// A word of a ring's entry. `offset` is a multiple of 8 inside.
    #[inline]
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset % 8 == 0 && self.holds(offset as u64, 8));
        // SAFETY: inside and aligned, by the line above. That the kernel does not write the entry meanwhile is by the ring's counters; a value from it is
        // checked by whoever uses it.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
