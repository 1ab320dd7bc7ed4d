//! Prefetches of cache lines, into the level of the cache where most of them can be outstanding at once.

use std::sync::atomic::AtomicU64;

/// The first-level cache, as a level to [`prefetch`] into.
pub const FIRST_LEVEL: u8 = 1;
/// The second-level cache.
pub const SECOND_LEVEL: u8 = 2;

/// Returns the level for bulks of prefetches on this processor.
///
/// AMD's Zen 4, the only one of AMD's that was measured, takes at most 24 misses of the first level at once, and further prefetches cost more
/// than the memory: two lines for each of 32 keys take 22 ns per key, but 14 ns if they go to the second level only. On Intel's the first level
/// is faster (docs/performance.md, "The connection table").
#[inline]
#[must_use]
pub fn prefetch_level() -> u8 {
    // Only AMD's cores have this extension.
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4a") {
        return SECOND_LEVEL;
    }
    FIRST_LEVEL
}

/// Prefetches the cache line of a word. An index beyond the end is harmless: its check would cost more than a wrong prefetch.
///
/// LEVEL is constant because asking [`prefetch_level`] for each line would take a tenth of a lookup.
#[inline(always)]
pub fn prefetch<const LEVEL: u8>(words: &[AtomicU64], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0, _MM_HINT_T1};
        let line = words.as_ptr().wrapping_add(index).cast();
        // SAFETY: a prefetch affects only the cache and never faults, whatever the address.
        unsafe {
            if LEVEL == SECOND_LEVEL {
                _mm_prefetch::<_MM_HINT_T1>(line);
            } else {
                _mm_prefetch::<_MM_HINT_T0>(line);
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (words, index);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_index_may_be_prefetched() {
        let words = [AtomicU64::new(7)];
        for index in [0, 1, usize::MAX] {
            prefetch::<FIRST_LEVEL>(&words, index);
            prefetch::<SECOND_LEVEL>(&words, index);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn only_processors_like_amds_get_lines_in_the_second_level() {
        let told = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let has_extension = told.split_whitespace().any(|flag| flag == "sse4a");
        // Hygon builds AMD's cores.
        let is_like_amds = told.contains("AuthenticAMD") || told.contains("HygonGenuine");
        assert_eq!(prefetch_level() == SECOND_LEVEL, has_extension);
        assert!(is_like_amds || !has_extension);
    }
}
