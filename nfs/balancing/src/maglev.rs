//! Weighted consistent hashing: the lookup table of Maglev (Eisenbud et al., NSDI 2016, section 3.4).
//!
//! A table depends only on the backends' identities and weights: every load balancer with the same backends chooses the same, and when a backend
//! is added or removed, few flows of the others move. That requires one table size: in a table of another size nearly every flow moves.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Slots of every table: a prime. 32 KiB fit a core's L1 cache and take 0.02 to 0.3 ms to fill. Shares are within 1 % of the weights with up to
/// 160 backends.
pub const SIZE: usize = 16_381;

/// The maximum of backends per VIP: with equal weights, each has at least four slots.
pub const MOST_BACKENDS: usize = SIZE / 4;

/// A backend that may be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Must be the same on every load balancer and never change.
    pub identity: String,
    pub weight: u16,
}

/// A lookup table of positions in a list of candidates. Empty where there are no candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maglev {
    table: Box<[u16]>,
}

/// A slot without a candidate.
const FREE: u16 = u16::MAX;

impl Maglev {
    #[must_use]
    pub fn new(candidates: &[Candidate]) -> Self {
        let mut fillers: Vec<Filler> = (0..)
            .zip(candidates)
            .filter(|(_, candidate)| candidate.weight > 0)
            .map(|(position, candidate)| Filler::new(position, candidate))
            .collect();
        // The order must not depend on the order of the configuration.
        fillers.sort_by_key(|filler| filler.order);
        let heaviest = fillers
            .iter()
            .map(|filler| filler.weight)
            .max()
            .unwrap_or(0);
        if heaviest == 0 {
            return Self::default();
        }
        let mut table = vec![FREE; SIZE];
        let mut free = SIZE;
        'filling: loop {
            for filler in &mut fillers {
                // Each candidate's turns are in proportion to its weight.
                filler.credit += filler.weight;
                if filler.credit < heaviest {
                    continue;
                }
                filler.credit -= heaviest;
                let slot = filler.next_free(&table);
                table[slot] = filler.position;
                free -= 1;
                if free == 0 {
                    break 'filling;
                }
            }
        }
        Self {
            table: table.into(),
        }
    }

    /// Returns the position of the candidate chosen for a flow's hash.
    #[must_use]
    #[inline]
    pub fn choose(&self, hash: u64) -> Option<u16> {
        // Multiplication instead of division (Lemire, 2019).
        let index = ((hash >> 32) * self.table.len() as u64) >> 32;
        self.table.get(index as usize).copied()
    }
}

/// A backend's walk through its permutation of the table.
struct Filler {
    order: u64,
    weight: u32,
    credit: u32,
    position: u16,
    at: usize,
    skip: usize,
}

impl Filler {
    fn new(position: u16, candidate: &Candidate) -> Self {
        let offset = xxh3_64_with_seed(candidate.identity.as_bytes(), 0);
        let skip = xxh3_64_with_seed(candidate.identity.as_bytes(), 1);
        Self {
            order: offset,
            weight: candidate.weight.into(),
            credit: 0,
            position,
            at: (offset % SIZE as u64) as usize,
            skip: (skip % (SIZE as u64 - 1)) as usize + 1,
        }
    }

    /// Returns the next free slot of the walk, which visits every slot because the size is prime.
    fn next_free(&mut self, table: &[u16]) -> usize {
        loop {
            let slot = self.at;
            self.at += self.skip;
            // Not `%`, which is slow: most steps find a taken slot.
            if self.at >= SIZE {
                self.at -= SIZE;
            }
            if table[slot] == FREE {
                return slot;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(weights: &[u16]) -> Maglev {
        let candidates: Vec<Candidate> = weights
            .iter()
            .enumerate()
            .map(|(index, weight)| Candidate {
                identity: format!("10.0.0.{index}:80"),
                weight: *weight,
            })
            .collect();
        Maglev::new(&candidates)
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
        for (index, share) in shares(&table(&[1; 20]), 20).into_iter().enumerate() {
            assert!((share - 0.05).abs() < 0.001, "backend {index}: {share}");
        }
        let weighted = shares(&table(&[1, 2, 7, 0]), 4);
        for (share, expected) in weighted.iter().zip([0.1, 0.2, 0.7, 0.0]) {
            assert!((share - expected).abs() < 0.005, "{weighted:?}");
        }
    }

    #[test]
    fn removing_a_backend_moves_few_flows_of_the_others() {
        let before = table(&[1; 10]);
        let after = table(&[1, 1, 1, 1, 0, 1, 1, 1, 1, 1]);
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
        let candidate = |identity: &str| Candidate {
            identity: identity.into(),
            weight: 3,
        };
        let one = Maglev::new(&[candidate("a"), candidate("b")]);
        let other = Maglev::new(&[candidate("b"), candidate("a")]);
        let pairs = one.table.iter().zip(&other.table);
        assert!(pairs.clone().all(|(one, other)| one + other == 1));
        assert!(pairs.clone().any(|(one, _)| *one == 0));
    }

    #[test]
    fn without_candidates_none_is_chosen() {
        assert_eq!(table(&[0, 0]).choose(u64::MAX), None);
        assert_eq!(table(&[]).choose(0), None);
        let one = table(&[5]);
        assert_eq!((one.choose(0), one.choose(u64::MAX)), (Some(0), Some(0)));
    }

    #[test]
    fn the_size_is_prime() {
        assert!((2..)
            .take_while(|divisor| divisor * divisor <= SIZE)
            .all(|divisor| SIZE % divisor != 0));
    }

    #[test]
    fn adding_a_backend_moves_few_flows_of_the_others() {
        for backends in [2, 10, 40, 163] {
            let before = table(&vec![1; backends]);
            let after = table(&vec![1; backends + 1]);
            let moved = (0..10_000_u64)
                .map(|flow| flow << 32 | flow.wrapping_mul(0x9e37_79b9) << 16)
                .map(|flow| flow.wrapping_mul(0x9e37_79b9_7f4a_7c15))
                .map(|hash| (before.choose(hash), after.choose(hash)))
                .filter(|(old, new)| old != new && *new != Some(backends as u16))
                .count();
            assert!(moved < 800, "{moved} of 10,000 flows moved between old backends when backend {backends} was added");
        }
    }
}
