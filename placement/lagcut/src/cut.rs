//! The minimum of a weighted program with one sNIC: a minimum cut between the host and the sNIC.

use crate::lists::Lists;
use crate::maxflow::Network;
use crate::program::{Form, Program};

/// The price of a location without a mode: more than any sum of weights.
const FAR: i64 = i64::MAX / 4;

/// The result of a trial of weights.
pub struct Cut {
    pub modes: Vec<u8>,
    /// Multipliers of the arcs.
    pub flows: Vec<i64>,
    /// The minimum of the weighted program, less the weighted limits.
    pub base: i64,
}

/// Minimises one program under many weights.
pub struct Cutter<'a> {
    program: &'a Program,
    network: Network,
    /// Arcs that share an edge: the first, and its successor if that is its reverse.
    pairs: Vec<(usize, bool)>,
    /// Per row and, last, for the goal: four times the sum of its amounts (and its limit), to stay within 64 bits.
    sums: Vec<i128>,
    alpha: Lists<i64>,
    crossed: Vec<i64>,
}

impl<'a> Cutter<'a> {
    pub fn new(program: &'a Program) -> Self {
        let mut pairs = Vec::with_capacity(program.arcs.len());
        let mut ends = Vec::with_capacity(program.arcs.len());
        let mut a = 0;
        while let Some(&(i, j, k)) = program.arcs.get(a) {
            let twin = program.arcs.get(a + 1) == Some(&(j, i, k));
            pairs.push((a, twin));
            ends.push((i as u32, j as u32));
            a += 1 + usize::from(twin);
        }
        let row = |(form, limit): (&Form, i64)| amounts(form) * 4 + i128::from(limit.abs());
        let rows = program.rows.iter().map(|row| (&row.form, row.limit));
        Cutter {
            program,
            network: Network::new(program.sites.len(), &ends),
            pairs,
            sums: rows.chain([(&program.goal, 0)]).map(row).collect(),
            alpha: program.sites.filled(0),
            crossed: vec![0; program.arcs.len()],
        }
    }

    /// Tell whether all sums under these weights stay well within 64 bits.
    pub fn fits(&self, weights: &[i64], goal: i64) -> bool {
        let terms = self.sums.iter().zip(weights.iter().chain([&goal]));
        terms
            .map(|(sum, weight)| sum * i128::from(*weight))
            .sum::<i128>()
            < 1 << 62
    }

    /// Minimise the weighted program over all placements, or over those with one NF in a given mode.
    pub fn run(&mut self, weights: &[i64], goal: i64, pin: Option<(usize, u8)>) -> Cut {
        self.weigh(weights, goal);
        let count = self.program.sites.len();
        let mut modes = Vec::with_capacity(count);
        let mut base = 0;
        for i in 0..count {
            let at = self.cheapest(i, pin);
            let cost = at.map(|mode| mode.map_or(FAR, |m| self.alpha[i][m as usize]));
            base += cost[0].min(cost[1]);
            let surplus = if at.contains(&None) {
                FAR
            } else {
                (cost[0] - cost[1]).abs()
            };
            self.network
                .supply(i, if cost[0] > cost[1] { surplus } else { -surplus });
            modes.push(at);
        }
        for (e, &(a, twin)) in self.pairs.iter().enumerate() {
            let back = if twin { self.crossed[a + 1] } else { 0 };
            self.network.capacity(e, self.crossed[a], back);
        }
        base += self.network.run();
        let rows = self.program.rows.iter().zip(weights);
        let slack: i64 = rows.map(|(row, weight)| weight * row.limit).sum();
        let side = |(i, at): (usize, [Option<u8>; 2])| {
            let (nic, host) = (at[1], at[0]);
            if self.network.reached(i) {
                nic.or(host)
            } else {
                host.or(nic)
            }
            .unwrap_or(0)
        };
        Cut {
            modes: modes.into_iter().enumerate().map(side).collect(),
            flows: self.flows(),
            base: base - slack,
        }
    }

    /// Compute per NF and mode the weighted use, and per arc the weighted coefficients.
    fn weigh(&mut self, weights: &[i64], goal: i64) {
        self.alpha.items_mut().fill(0);
        self.crossed.fill(0);
        let rows = self.program.rows.iter().map(|row| &row.form).zip(weights);
        for (form, &weight) in rows
            .chain([(&self.program.goal, &goal)])
            .filter(|(_, w)| **w != 0)
        {
            for (i, coefs) in form.choice() {
                for (slot, coef) in self.alpha[i].iter_mut().zip(coefs) {
                    *slot += weight * coef;
                }
            }
            for (a, coef) in &form.cross {
                self.crossed[*a] += weight * coef;
            }
        }
    }

    /// Return an NF's cheapest mode on the host and on the sNIC.
    fn cheapest(&self, i: usize, pin: Option<(usize, u8)>) -> [Option<u8>; 2] {
        let mut at: [Option<(i64, u8)>; 2] = [None, None];
        for (m, (value, site)) in self.alpha[i].iter().zip(&self.program.sites[i]).enumerate() {
            if pin.is_some_and(|(nf, mode)| nf == i && usize::from(mode) != m) {
                continue;
            }
            let slot = &mut at[*site as usize];
            if slot.is_none_or(|(low, _)| *value < low) {
                *slot = Some((*value, m as u8));
            }
        }
        at.map(|found| found.map(|(_, mode)| mode))
    }

    fn flows(&self) -> Vec<i64> {
        let mut flows = vec![0; self.crossed.len()];
        for (e, &(a, twin)) in self.pairs.iter().enumerate() {
            let net = self.crossed[a] - self.network.left(e);
            flows[a] = net.max(0);
            if twin {
                flows[a + 1] = (-net).max(0);
            }
        }
        flows
    }
}

fn amounts(form: &Form) -> i128 {
    let unary: i128 = form.coefs.items().iter().map(|c| i128::from(c.abs())).sum();
    unary
        + form
            .cross
            .iter()
            .map(|(_, c)| i128::from(c.abs()))
            .sum::<i128>()
}
