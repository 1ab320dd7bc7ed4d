//! Weighted consistent hashing: the lookup table of Maglev (Eisenbud et al., NSDI 2016, section 3.4).
//!
//! A table follows from the backends' identities and weights alone: every load balancer with the same backends chooses the same, and
//! when a backend comes or goes, few flows of the others change.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Sizes of tables: primes, each about four times the one before.
const SIZES: [usize; 5] = [251, 1021, 4093, 16_381, 65_521];

/// Slots per backend that keep each one's share within 1 % of its weight.
const SLOTS_PER_BACKEND: usize = 100;

/// Who may be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The same on every load balancer and for ever.
    pub identity: &'a [u8],
    pub weight: u16,
    /// What the table answers.
    pub value: u16,
}

/// A lookup table. Empty where there is nobody to choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maglev {
    table: Box<[u16]>,
}

impl Maglev {
    /// `backends`: how many there are, with those that cannot be chosen now; the size of the table depends on it, so that it stays the same
    /// when one of them fails.
    #[must_use]
    pub fn new(candidates: &[Candidate<'_>], backends: usize) -> Self {
        let size = Self::size_for(backends);
        let mut fillers: Vec<Filler> = candidates
            .iter()
            .filter(|candidate| candidate.weight > 0)
            .map(|candidate| Filler::new(candidate, size))
            .collect();
        // The order must not depend on the configuration's.
        fillers.sort_by_key(|filler| filler.order);
        let heaviest = fillers
            .iter()
            .map(|filler| filler.weight)
            .max()
            .unwrap_or(0);
        if heaviest == 0 {
            return Self::default();
        }
        let mut table = vec![None; size];
        let mut free = size;
        'filling: loop {
            for filler in &mut fillers {
                // As many turns as the weight's share of the heaviest one's.
                filler.credit += filler.weight;
                if filler.credit < heaviest {
                    continue;
                }
                filler.credit -= heaviest;
                let slot = filler.next_free(&table);
                table[slot] = Some(filler.value);
                free -= 1;
                if free == 0 {
                    break 'filling;
                }
            }
        }
        Self {
            table: table.into_iter().flatten().collect(),
        }
    }

    fn size_for(backends: usize) -> usize {
        let wanted = backends.saturating_mul(SLOTS_PER_BACKEND);
        SIZES
            .into_iter()
            .find(|size| *size >= wanted)
            .unwrap_or(SIZES[SIZES.len() - 1])
    }

    /// The choice for a flow's hash.
    #[must_use]
    #[inline]
    pub fn choose(&self, hash: u64) -> Option<u16> {
        // Multiplying takes the place of dividing (Lemire, 2019).
        let index = ((hash >> 32) * self.table.len() as u64) >> 32;
        self.table.get(index as usize).copied()
    }
}

/// A backend's walk through its permutation of the table.
struct Filler {
    order: u64,
    weight: u32,
    credit: u32,
    value: u16,
    at: usize,
    skip: usize,
    size: usize,
}

impl Filler {
    fn new(candidate: &Candidate<'_>, size: usize) -> Self {
        let offset = xxh3_64_with_seed(candidate.identity, 0);
        let skip = xxh3_64_with_seed(candidate.identity, 1);
        Self {
            order: offset,
            weight: candidate.weight.into(),
            credit: 0,
            value: candidate.value,
            at: (offset % size as u64) as usize,
            skip: (skip % (size as u64 - 1)) as usize + 1,
            size,
        }
    }

    /// The size is prime, so the walk comes to every slot.
    fn next_free(&mut self, table: &[Option<u16>]) -> usize {
        loop {
            let slot = self.at;
            self.at = (self.at + self.skip) % self.size;
            if table[slot].is_none() {
                return slot;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(weights: &[u16], backends: usize) -> Maglev {
        let identities: Vec<String> = (0..weights.len())
            .map(|each| format!("10.0.0.{each}:80"))
            .collect();
        let candidates: Vec<Candidate<'_>> = weights
            .iter()
            .enumerate()
            .map(|(index, weight)| Candidate {
                identity: identities[index].as_bytes(),
                weight: *weight,
                value: index as u16,
            })
            .collect();
        Maglev::new(&candidates, backends)
    }

    fn shares(maglev: &Maglev, backends: usize) -> Vec<f64> {
        (0..backends)
            .map(|backend| {
                let own = maglev
                    .table
                    .iter()
                    .filter(|value| usize::from(**value) == backend);
                own.count() as f64 / maglev.table.len() as f64
            })
            .collect()
    }

    #[test]
    fn shares_follow_weights() {
        for (index, share) in shares(&table(&[1; 20], 20), 20).into_iter().enumerate() {
            assert!((share - 0.05).abs() < 0.001, "backend {index}: {share}");
        }
        let weighted = shares(&table(&[1, 2, 7, 0], 4), 4);
        for (share, expected) in weighted.iter().zip([0.1, 0.2, 0.7, 0.0]) {
            assert!((share - expected).abs() < 0.005, "{weighted:?}");
        }
    }

    #[test]
    fn few_flows_of_the_others_change_when_one_goes() {
        let before = table(&[1; 10], 10);
        let after = table(&[1, 1, 1, 1, 0, 1, 1, 1, 1, 1], 10);
        let moved = before
            .table
            .iter()
            .zip(&after.table)
            .filter(|(old, new)| **old != 4 && old != new)
            .count();
        assert!(
            moved * 100 < before.table.len() * 6,
            "{moved} of {}",
            before.table.len()
        );
    }

    #[test]
    fn the_order_of_the_configuration_does_not_matter() {
        let (a, b): (&[u8], &[u8]) = (b"a", b"b");
        let candidate = |identity, value| Candidate {
            identity,
            weight: 3,
            value,
        };
        let one = Maglev::new(&[candidate(a, 1), candidate(b, 2)], 2);
        assert_eq!(one, Maglev::new(&[candidate(b, 2), candidate(a, 1)], 2));
    }

    #[test]
    fn nobody_is_chosen_where_there_is_nobody() {
        assert_eq!(table(&[0, 0], 2).choose(u64::MAX), None);
        assert_eq!(table(&[], 0).choose(0), None);
        let one = table(&[5], 1);
        assert_eq!((one.choose(0), one.choose(u64::MAX)), (Some(0), Some(0)));
    }

    #[test]
    fn sizes_are_prime() {
        for size in SIZES {
            assert!(
                (2..).take_while(|d| d * d <= size).all(|d| size % d != 0),
                "{size}"
            );
        }
    }
}
