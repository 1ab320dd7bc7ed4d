//! Finished arenas and their regions.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{atomic::AtomicU64, Arc},
    time::Duration,
};

use rustix::fs::{seek, SeekFrom};

use crate::{mapping::Mapping, marks::Marks, memory::Memory, BLOCK_WORDS};

/// The first words of an arena.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const FORMAT: usize = 1;
    pub(crate) const SCHEMA: usize = 2;
    pub(crate) const REGIONS: usize = 3;
    pub(crate) const CLOCK_OFFSET: usize = 4;
    /// The first word of the table of regions.
    pub(crate) const TABLE: usize = 8;

    pub(crate) const MAGIC_VALUE: u64 = u64::from_le_bytes(*b"nf-arena");
    pub(crate) const FORMAT_VALUE: u64 = 1;
    /// The length of header and table: a fixed 64 KiB.
    pub(crate) const WORDS: usize = 8192;
}

/// An entry of the table of regions: 16 words. Name and layout are cut off after 40 bytes; the schema hash covers them whole.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct RegionEntry {
    pub(crate) name: [u8; 40],
    pub(crate) layout: [u8; 40],
    /// A hash of the whole name and layout.
    pub(crate) identity: u64,
    /// The offset from the start of the file in bytes; a multiple of the page size.
    pub(crate) offset: u64,
    pub(crate) words: u64,
    pub(crate) reserved: [u64; 3],
}

pub(crate) const ENTRY_WORDS: usize = size_of::<RegionEntry>() / size_of::<u64>();
pub(crate) const MAX_REGIONS: usize = (header::WORDS - header::TABLE) / ENTRY_WORDS;

/// The part of an arena that one data structure owns. Cheap to clone.
#[derive(Clone)]
pub struct Region(pub(crate) Arc<RegionInner>);

pub(crate) struct RegionInner {
    pub(crate) name: String,
    /// As in [`RegionEntry`].
    pub(crate) offset: u64,
    pub(crate) mapping: Mapping,
    pub(crate) dirty: Marks,
}

impl Region {
    pub(crate) fn new(name: &str, offset: u64, mapping: Mapping) -> Self {
        let blocks = mapping.words().len().div_ceil(BLOCK_WORDS);
        let dirty = Marks::set(blocks);
        Self(Arc::new(RegionInner {
            name: name.to_owned(),
            offset,
            mapping,
            dirty,
        }))
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Sleeps until another thread, of any process, [wakes](Self::wake_waiting) those that wait for the word, or for this long. Returns at once if its lower
    /// half differs from that of `value`; may return early.
    ///
    /// ```
    /// # use std::{sync::atomic::Ordering, thread, time::Duration};
    /// # use nf_arena::{ArenaBuilder, Memory};
    /// let mut builder = ArenaBuilder::fresh("turns", 1)?;
    /// let turn = builder.region("turn", "u64", 1)?;
    /// let other = turn.clone();
    /// thread::spawn(move || {
    ///     other.words()[0].store(1, Ordering::Release);
    ///     other.wake_waiting(0);
    /// });
    /// while turn.words()[0].load(Ordering::Acquire) == 0 {
    ///     turn.wait(0, 0, Duration::from_secs(9));
    /// }
    /// # Ok::<(), nf_arena::ArenaError>(())
    /// ```
    pub fn wait(&self, index: usize, value: u64, longest: Duration) {
        self.0.mapping.wait(index, value, longest);
    }

    /// Wakes all threads that [wait](Self::wait) for a word; returns their number. Call it after the change.
    pub fn wake_waiting(&self, index: usize) -> usize {
        self.0.mapping.wake(index)
    }

    /// Maps the pages of this region that hold data now.
    fn prefault(&self, file: BorrowedFd<'_>) {
        let start = self.0.offset;
        let end = start + self.words().len() as u64 * 8;
        let mut at = start;
        while let Some(data) = seek(file, SeekFrom::Data(at)).ok().filter(|at| *at < end) {
            let hole = seek(file, SeekFrom::Hole(data)).map_or(end, |hole| hole.min(end));
            let bytes = (data - start) as usize..(hole - start) as usize;
            self.0.mapping.populate(bytes);
            at = hole;
        }
    }
}

impl Memory for Region {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self.0.mapping.words()
    }

    #[inline]
    fn touch(&self, index: usize) {
        self.0.dirty.mark(index / BLOCK_WORDS);
    }
}

/// The whole state of one instance. Cheap to clone; unmapped with the last clone and the last region.
#[derive(Clone)]
pub struct Arena(pub(crate) Arc<ArenaInner>);

pub(crate) struct ArenaInner {
    pub(crate) file: OwnedFd,
    pub(crate) header: Mapping,
    pub(crate) regions: Vec<Region>,
    pub(crate) schema: u64,
}

impl Arena {
    /// Returns the hash of kind, schema version, and every region's name, layout and size.
    #[must_use]
    pub fn schema(&self) -> u64 {
        self.0.schema
    }

    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.0.regions
    }

    #[must_use]
    pub fn region(&self, name: &str) -> Option<&Region> {
        self.0.regions.iter().find(|region| region.name() == name)
    }

    /// Returns the total size of all regions in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0
            .regions
            .iter()
            .map(|region| region.words().len() as u64 * 8)
            .sum()
    }

    /// Maps all pages that hold data now, so that the first accesses to them do not fault, which takes about a microsecond each. Pages without data stay
    /// without memory.
    pub fn prefault(&self) {
        let regions = self.regions().iter();
        regions.for_each(|region| region.prefault(self.as_fd()));
    }

    pub(crate) fn clock_offset(&self) -> &AtomicU64 {
        &self.0.header.words()[header::CLOCK_OFFSET]
    }
}

impl AsFd for Arena {
    /// Returns the memfd, for handing over.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}
