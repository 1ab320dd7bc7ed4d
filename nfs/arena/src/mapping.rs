//! A mapped range of memory as words. This module and `prefetch` have all `unsafe` code of the crate.

use std::{
    ops::Range,
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64},
    time::Duration,
};

use rustix::{
    mm::{madvise, mmap, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags},
    thread::{futex, Timespec},
};

use crate::{system, ArenaError};

const WORD_BYTES: usize = size_of::<u64>();
/// The place of a word's lower half, in halves.
const LOWER: usize = if cfg!(target_endian = "big") { 1 } else { 0 };

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

    /// Maps the pages of these bytes now. Only a hint: kernels before 5.14 do not know it.
    pub(crate) fn populate(&self, bytes: Range<usize>) {
        let end = bytes.end.min(self.words * WORD_BYTES);
        let Some(length) = end.checked_sub(bytes.start) else {
            return;
        };
        // SAFETY: by the type's invariant the range is mapped, and populating it does not change its content.
        let _ = unsafe {
            let start = self.start.as_ptr().byte_add(bytes.start);
            madvise(start.cast(), length, Advice::LinuxPopulateWrite)
        };
    }

    /// Sleeps until a thread of any process [wakes](Self::wake) those that wait for this word, or for this long. Returns at once if the word's lower
    /// half differs from that of `value`; may return early.
    pub(crate) fn wait(&self, index: usize, value: u64, longest: Duration) {
        let longest = Timespec {
            tv_sec: longest.as_secs() as i64,
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        let half = self.lower_half(index);
        // Interrupted or not, the caller looks again.
        let _ = futex::wait(half, futex::Flags::empty(), value as u32, Some(&longest));
    }

    /// Wakes all threads that wait for this word; returns their number.
    pub(crate) fn wake(&self, index: usize) -> usize {
        let all = i32::MAX as u32;
        // Fails only for a wrong address.
        futex::wake(self.lower_half(index), futex::Flags::empty(), all).unwrap_or(0)
    }

    /// Returns the address by which the kernel knows those who wait for a word. Only the kernel reads it.
    fn lower_half(&self, index: usize) -> &AtomicU32 {
        let word: *const AtomicU64 = &raw const self.words()[index];
        // SAFETY: half of a word that is mapped as long as `self`, and as aligned as the word. This crate never accesses memory by it, so the halves
        // are never mixed with accesses to whole words.
        unsafe { &*word.cast::<AtomicU32>().add(LOWER) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the callers of `own` mapped the range with this length, and no borrow of it remains.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.words.max(1) * WORD_BYTES) };
    }
}
