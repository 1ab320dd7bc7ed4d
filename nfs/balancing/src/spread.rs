//! Spreads a VIP's connections over its open backends. The spread depends only on their addresses, ports and weights, and is reused while these stay the same.

use crate::maglev::{Candidate, Maglev};

/// The choice among open backends, by their positions, independent of their numbers.
#[derive(Default)]
pub struct Spread {
    candidates: Vec<Candidate>,
    maglev: Maglev,
    /// Positions, each as often as its weight says.
    turns: Vec<u16>,
}

impl Spread {
    #[must_use]
    pub fn new(candidates: Vec<Candidate>) -> Self {
        let weights: Vec<u16> = candidates.iter().map(|each| each.weight).collect();
        Self {
            maglev: Maglev::new(&candidates),
            turns: turns(&weights),
            candidates,
        }
    }

    #[must_use]
    pub fn is_of(&self, candidates: &[Candidate]) -> bool {
        self.candidates == candidates
    }

    /// Returns the choice for a flow's hash that every load balancer makes.
    #[must_use]
    #[inline]
    pub fn agreed(&self, hash: u64) -> Option<u16> {
        self.maglev.choose(hash)
    }

    /// Returns the choice for a turn of round robin.
    #[must_use]
    pub fn in_turn(&self, turn: u64) -> Option<u16> {
        let turn = turn % self.turns.len().max(1) as u64;
        self.turns.get(turn as usize).copied()
    }
}

/// Writes out one turn of smooth weighted round robin (as in nginx).
fn turns(weights: &[u16]) -> Vec<u16> {
    const LONGEST: usize = 4096;
    let divisor = weights
        .iter()
        .fold(0, |divisor, weight| greatest_common(divisor, *weight))
        .max(1);
    let total: i64 = weights
        .iter()
        .map(|weight| i64::from(weight / divisor))
        .sum();
    let mut credit = vec![0_i64; weights.len()];
    let mut order = Vec::new();
    for _ in 0..(total as usize).min(LONGEST) {
        for (credit, weight) in credit.iter_mut().zip(weights) {
            *credit += i64::from(weight / divisor);
        }
        let best = (0..weights.len()).rev().max_by_key(|index| credit[*index]);
        if let Some(best) = best {
            credit[best] -= total;
            order.push(best as u16);
        }
    }
    order
}

const fn greatest_common(a: u16, b: u16) -> u16 {
    if b == 0 {
        a
    } else {
        greatest_common(b, a % b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_smooth_and_follow_weights() {
        assert_eq!(turns(&[5, 1, 1]), [0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(turns(&[20, 20]), [0, 1]);
        assert!(turns(&[]).is_empty());
    }
}
