//! A mapped range of memory as words. This module has all `unsafe` code of the crate.

use std::{os::fd::BorrowedFd, ptr::NonNull, sync::atomic::AtomicU64};

use rustix::mm::{madvise, mmap, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};

use crate::{system, ArenaError};

const WORD_BYTES: usize = size_of::<u64>();

/// Invariant: `start` is page aligned, and the `words * 8` bytes from it stay mapped, readable and writable until drop.
pub(crate) struct Mapping {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory is only accessible as `&[AtomicU64]`, which threads may share.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps zeroed memory private to this process.
    pub(crate) fn private(words: usize) -> Result<Self, ArenaError> {
        let bytes = words.max(1) * WORD_BYTES;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel does not touch memory in use.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) };
        Ok(Self::own(
            start.map_err(system("cannot map memory"))?,
            words,
        ))
    }

    /// Maps `words` words of a file from `offset` bytes on; `offset` is a multiple of the page size. The caller must ensure by a seal
    /// that the file cannot shrink below them: reading beyond its end would raise SIGBUS.
    pub(crate) fn shared(
        file: BorrowedFd<'_>,
        offset: u64,
        words: usize,
    ) -> Result<Self, ArenaError> {
        let bytes = words.max(1) * WORD_BYTES;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `private`. Another process may write the same memory, which is accessed only through atomics.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                file,
                offset,
            )
        };
        Ok(Self::own(
            start.map_err(system("cannot map the arena"))?,
            words,
        ))
    }

    fn own(start: *mut core::ffi::c_void, words: usize) -> Self {
        // With 4 KiB pages, random access over megabytes costs a TLB miss each. This is only a hint: kernels without it are slower.
        // SAFETY: the range is this process's own mapping, and MADV_HUGEPAGE does not change its content.
        let _ = unsafe { madvise(start, words.max(1) * WORD_BYTES, Advice::LinuxHugepage) };
        // mmap never returns null: rustix turns failures into Err.
        let start = NonNull::new(start.cast()).unwrap_or(NonNull::dangling());
        Self { start, words }
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: by the type's invariant; AtomicU64 has the layout of u64 and no invalid values, and the mapping is page aligned.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

/// Prefetches the cache line of a word. An index beyond the end is harmless: its check would cost more than a wrong prefetch.
#[inline(always)]
pub fn prefetch(words: &[AtomicU64], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: a prefetch affects only the cache and never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(words.as_ptr().wrapping_add(index).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (words, index);
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the callers of `own` mapped the range with this length, and no borrow of it remains.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.words.max(1) * WORD_BYTES) };
    }
}
