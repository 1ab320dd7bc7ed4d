//! Memory shared with the kernel: frames and rings.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64},
};

/// Invariant: the `bytes` bytes from `start`, which is page aligned, stay mapped, readable and writable until drop.
pub(super) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, in whichever thread; the kernel's use of it does not depend on the thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Maps zeroed memory.
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        Self::map(-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, bytes, 0)
    }

    /// Maps a socket's ring, with all pages populated.
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
        // SAFETY: a new mapping at an address chosen by the kernel does not touch memory in use.
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

    /// Returns the address, for the kernel.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// Tells whether a range of bytes is inside.
    fn holds(&self, offset: u64, length: usize) -> bool {
        offset
            .checked_add(length as u64)
            .is_some_and(|end| end <= self.bytes as u64)
    }

    /// Copies bytes out. If they are not inside, `into` stays unchanged.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        if self.holds(offset, into.len()) {
            // SAFETY: inside the mapping, as checked above; `into` is other memory. The chunk came out of a ring: the kernel does not write it until it goes back.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    self.start.as_ptr().add(offset as usize),
                    into.as_mut_ptr(),
                    into.len(),
                )
            };
        }
    }

    /// Copies bytes in, unless they would lie outside.
    pub(super) fn write(&mut self, offset: u64, from: &[u8]) {
        if self.holds(offset, from.len()) {
            // SAFETY: as in `read`; the kernel does not read the chunk until it goes into a ring.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    from.as_ptr(),
                    self.start.as_ptr().add(offset as usize),
                    from.len(),
                )
            };
        }
    }

    /// Returns a counter of a ring. `offset` is a multiple of 4, inside the mapping.
    #[inline]
    pub(super) fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset % 4 == 0 && self.holds(offset as u64, 4));
        // SAFETY: inside and aligned, as checked above; the kernel accesses it atomically as well.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// Returns a word of a ring's entry. `offset` is a multiple of 8, inside the mapping.
    #[inline]
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset % 8 == 0 && self.holds(offset as u64, 8));
        // SAFETY: inside and aligned, as checked above. The ring's counters ensure that the kernel does not write the entry meanwhile; callers check
        // values read from it.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no borrow of it remains.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
