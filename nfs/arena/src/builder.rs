//! Builds arenas: fresh ones, or ones adopted from a previous instance.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{atomic::Ordering, Arc},
};

use rustix::fs::{
    fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create, MemfdFlags, SealFlags,
};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    arena::{header, Arena, ArenaInner, Region, RegionEntry, ENTRY_WORDS, MAX_REGIONS},
    mapping::Mapping,
    system, ArenaError,
};

/// The alignment of regions: a multiple of every page size in use on Linux (arm64 has 64 KiB pages).
const ALIGNMENT: u64 = 64 * 1024;

/// Collects the regions of an arena.
///
/// ```
/// use nf_arena::{ArenaBuilder, Memory};
/// let mut builder = ArenaBuilder::fresh("counter", 1)?;
/// let region = builder.region("counts", "u64", 16)?;
/// let arena = builder.finish()?;
/// region.words()[3].store(7, std::sync::atomic::Ordering::Relaxed);
///
/// let file = std::os::fd::AsFd::as_fd(&arena).try_clone_to_owned().unwrap();
/// let mut builder = ArenaBuilder::adopt(file, "counter", 1)?;
/// assert_eq!(builder.region("counts", "u64", 16)?.words()[3].load(std::sync::atomic::Ordering::Relaxed), 7);
/// assert_eq!(builder.finish()?.schema(), arena.schema());
/// # Ok::<(), nf_arena::ArenaError>(())
/// ```
pub struct ArenaBuilder {
    file: OwnedFd,
    header: Mapping,
    regions: Vec<Region>,
    entries: Vec<RegionEntry>,
    /// The entries of the adopted arena; None for a fresh one.
    adopted: Option<Vec<RegionEntry>>,
    end: u64,
    hash: Xxh3,
}

impl ArenaBuilder {
    /// Starts an empty arena. `kind` names the network function, `schema` the version of its state's meaning.
    ///
    /// # Errors
    /// If the system is out of memory.
    pub fn fresh(kind: &str, schema: u32) -> Result<Self, ArenaError> {
        let file = memfd_create("nf-arena", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(system("cannot make a memfd"))?;
        let end = header::WORDS as u64 * 8;
        ftruncate(&file, end).map_err(system("cannot size the arena"))?;
        let header = Mapping::shared(file.as_fd(), 0, header::WORDS)?;
        Ok(Self::new(file, header, None, end, kind, schema))
    }

    /// Adopts the arena of another instance of the same kind and schema. The caller declares the same regions again.
    ///
    /// # Errors
    /// [`ArenaError::NotAnArena`] for any other file; [`ArenaError::Schema`] comes later, from
    /// [`region`](Self::region) and [`finish`](Self::finish).
    pub fn adopt(file: OwnedFd, kind: &str, schema: u32) -> Result<Self, ArenaError> {
        let not = |reason: String| ArenaError::NotAnArena { reason };
        let size = fstat(&file)
            .map_err(system("cannot stat the arena"))?
            .st_size as u64;
        if size < header::WORDS as u64 * 8 {
            return Err(not(format!("{size} bytes, too few for a header")));
        }
        let seals = fcntl_get_seals(&file).map_err(|errno| not(format!("not a memfd: {errno}")))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(not("not sealed against shrinking".into()));
        }
        let header = Mapping::shared(file.as_fd(), 0, header::WORDS)?;
        let word = |index: usize| header.words()[index].load(Ordering::Acquire);
        if word(header::MAGIC) != header::MAGIC_VALUE {
            return Err(not(format!(
                "starts with {:#018x}, expected \"nf-arena\"",
                word(header::MAGIC)
            )));
        }
        if word(header::FORMAT) != header::FORMAT_VALUE {
            return Err(not(format!(
                "format {}, expected {}",
                word(header::FORMAT),
                header::FORMAT_VALUE
            )));
        }
        let count = usize::try_from(word(header::REGIONS)).unwrap_or(usize::MAX);
        if count > MAX_REGIONS {
            return Err(not(format!(
                "{count} regions, expected at most {MAX_REGIONS}"
            )));
        }
        let entries = (0..count)
            .map(|index| read_entry(&header, index))
            .collect::<Vec<_>>();
        for entry in &entries {
            let fits = entry.offset % ALIGNMENT == 0
                && entry
                    .words
                    .checked_mul(8)
                    .and_then(|bytes| bytes.checked_add(entry.offset))
                    .is_some_and(|end| end <= size);
            if !fits {
                return Err(not(format!(
                    "region {:?} is outside the file",
                    entry.name()
                )));
            }
        }
        Ok(Self::new(file, header, Some(entries), size, kind, schema))
    }

    fn new(
        file: OwnedFd,
        header: Mapping,
        adopted: Option<Vec<RegionEntry>>,
        end: u64,
        kind: &str,
        schema: u32,
    ) -> Self {
        let mut hash = Xxh3::new();
        hash.update(kind.as_bytes());
        hash.update(&schema.to_le_bytes());
        Self {
            file,
            header,
            regions: Vec::new(),
            entries: Vec::new(),
            adopted,
            end,
            hash,
        }
    }

    /// Tells whether this is another instance's arena, with its content.
    #[must_use]
    pub fn is_adopted(&self) -> bool {
        self.adopted.is_some()
    }

    /// Returns the names and sizes in words of the adopted arena's regions; empty for a fresh arena.
    #[must_use]
    pub fn adopted_regions(&self) -> Vec<(String, usize)> {
        let adopted = self.adopted.iter().flatten();
        adopted
            .map(|entry| (entry.name(), entry.words as usize))
            .collect()
    }

    /// Declares a region of `words` words: zero in a fresh arena, with its content in an adopted one. `layout` identifies the meaning of the words
    /// and must change with it: `"cuckoo ipv4 v1"`.
    ///
    /// # Errors
    /// If the name is taken, the table of regions is full, or the size exceeds any file; in an adopted arena, if the region is missing
    /// or differs.
    pub fn region(&mut self, name: &str, layout: &str, words: usize) -> Result<Region, ArenaError> {
        let refused = |reason: String| ArenaError::Refused {
            region: name.to_owned(),
            reason,
        };
        if self.regions.iter().any(|region| region.name() == name) {
            return Err(refused("the name is taken".into()));
        }
        if self.regions.len() == MAX_REGIONS {
            return Err(refused(format!("expected at most {MAX_REGIONS} regions")));
        }
        let mut entry = RegionEntry::new(name, layout, words);
        if let Some(adopted) = &self.adopted {
            entry.offset = find(adopted, &entry, name)?;
        } else {
            let (offset, end) = place(self.end, words)
                .ok_or_else(|| refused(format!("{words} words exceed the largest file")))?;
            (entry.offset, self.end) = (offset, end);
            ftruncate(&self.file, self.end).map_err(system("cannot size the arena"))?;
        }
        self.hash.update(&entry.identity.to_le_bytes());
        self.hash.update(&entry.words.to_le_bytes());
        let mapping = Mapping::shared(self.file.as_fd(), entry.offset, words)?;
        let region = Region::new(name, entry.offset, mapping);
        self.regions.push(region.clone());
        self.entries.push(entry);
        Ok(region)
    }

    /// Closes the list of regions.
    ///
    /// # Errors
    /// If an adopted arena has a region that was not declared: its state would be lost.
    pub fn finish(self) -> Result<Arena, ArenaError> {
        let schema = self.hash.digest();
        if let Some(adopted) = &self.adopted {
            let asked = |entry: &&RegionEntry| {
                self.entries
                    .iter()
                    .all(|other| other.identity != entry.identity)
            };
            if let Some(entry) = adopted.iter().find(asked) {
                return Err(ArenaError::Schema {
                    region: entry.name(),
                    reason: "this instance has no such region".into(),
                });
            }
            let theirs = self.header.words()[header::SCHEMA].load(Ordering::Acquire);
            if theirs != schema {
                let reason = format!(
                    "schema {theirs:016x}, expected {schema:016x}: the state has another kind or version"
                );
                return Err(ArenaError::Schema {
                    region: "(all)".into(),
                    reason,
                });
            }
        } else {
            for (index, entry) in self.entries.iter().enumerate() {
                let words: &[u64; ENTRY_WORDS] = bytemuck::cast_ref(entry);
                let table = &self.header.words()[header::TABLE + index * ENTRY_WORDS..];
                words
                    .iter()
                    .zip(table)
                    .for_each(|(value, word)| word.store(*value, Ordering::Relaxed));
            }
            let store = |index: usize, value: u64| {
                self.header.words()[index].store(value, Ordering::Release)
            };
            store(header::SCHEMA, schema);
            store(header::REGIONS, self.entries.len() as u64);
            store(header::FORMAT, header::FORMAT_VALUE);
            store(header::MAGIC, header::MAGIC_VALUE);
            fcntl_add_seals(&self.file, SealFlags::SHRINK | SealFlags::GROW)
                .map_err(system("cannot seal the arena"))?;
        }
        Ok(Arena(Arc::new(ArenaInner {
            file: self.file,
            header: self.header,
            regions: self.regions,
            schema,
        })))
    }
}

impl RegionEntry {
    fn new(name: &str, layout: &str, words: usize) -> Self {
        let mut hash = Xxh3::new();
        hash.update(name.as_bytes());
        hash.update(&[0]);
        hash.update(layout.as_bytes());
        Self {
            name: cut(name),
            layout: cut(layout),
            identity: hash.digest(),
            offset: 0,
            words: words as u64,
            reserved: [0; 3],
        }
    }

    fn name(&self) -> String {
        text(&self.name)
    }
}

/// Returns the start and end of a new region of `words` words in a file that ends at `end`; `None`: beyond the largest file.
fn place(end: u64, words: usize) -> Option<(u64, u64)> {
    let offset = end.checked_next_multiple_of(ALIGNMENT)?;
    let bytes = (words.max(1) as u64).checked_mul(8)?;
    let end = bytes
        .checked_next_multiple_of(ALIGNMENT)?
        .checked_add(offset)?;
    (end <= i64::MAX as u64).then_some((offset, end))
}

/// Returns the offset of a region in an adopted arena, or an error that names the difference.
fn find(adopted: &[RegionEntry], wanted: &RegionEntry, name: &str) -> Result<u64, ArenaError> {
    let differs = |reason: String| ArenaError::Schema {
        region: name.to_owned(),
        reason,
    };
    let Some(entry) = adopted.iter().find(|entry| entry.name == wanted.name) else {
        return Err(differs("the state has no such region".into()));
    };
    if entry.identity != wanted.identity {
        return Err(differs(format!(
            "its layout is {:?}, expected {:?}",
            text(&entry.layout),
            text(&wanted.layout)
        )));
    }
    if entry.words != wanted.words {
        return Err(differs(format!(
            "it has {} words, expected {}",
            entry.words, wanted.words
        )));
    }
    Ok(entry.offset)
}

fn read_entry(header: &Mapping, index: usize) -> RegionEntry {
    let mut words = [0; ENTRY_WORDS];
    let table = &header.words()[header::TABLE + index * ENTRY_WORDS..];
    words
        .iter_mut()
        .zip(table)
        .for_each(|(value, word)| *value = word.load(Ordering::Relaxed));
    bytemuck::cast(words)
}

fn cut(text: &str) -> [u8; 40] {
    let mut bytes = [0; 40];
    let length = text.len().min(bytes.len());
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    bytes
}

fn text(bytes: &[u8; 40]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\0')
        .to_owned()
}
