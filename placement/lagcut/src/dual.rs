//! The best bound from weights on the rows, for one sNIC: each trial is a minimum cut.

use std::time::Instant;

use crate::cut::Cutter;
use crate::master::{Column, Master};
use crate::program::{Dual, Program};

/// One goal unit in the whole-number multipliers, if the amounts allow it.
const SCALE: i64 = 1 << 20;

/// Tell whether the relaxation is a minimum cut: at most one sNIC.
pub fn applies(program: &Program) -> bool {
    program.sites.items().iter().all(|site| *site <= 1)
}

/// The aim of an ascent.
#[derive(Clone, Copy)]
pub struct Aim<'a> {
    /// Whether the goal counts; else only the excess of the rows.
    pub goal: bool,
    /// Stop when this value of the goal is ruled out, or clearly cannot be.
    pub target: Option<i64>,
    /// Only placements with this NF in this mode.
    pub pin: Option<(usize, u8)>,
    /// Placements to start from.
    pub pool: &'a [Vec<u8>],
    /// Trials.
    pub most: usize,
}

impl Aim<'_> {
    /// Find the best bound.
    pub const BOUND: Aim<'static> = Aim {
        goal: true,
        target: None,
        pin: None,
        pool: &[],
        most: usize::MAX,
    };
}

/// The trials that steered the weights, and their results.
pub struct Ascent {
    /// The best multipliers.
    pub dual: Dual,
    /// The weighted program's minimum under them, less the limits: above `goal * target` it rules the target out.
    pub base: i64,
    /// Placements tried, in order, and the share of each in the best mixture.
    columns: Vec<(Vec<u8>, f64)>,
    /// Placements tried that satisfy all rows.
    pub feasible: Vec<Vec<u8>>,
    /// Excess that no mixture of them removes.
    pub unmet: f64,
}

impl Ascent {
    /// Return the bound on the goal, as a number to compare.
    pub fn value(&self) -> f64 {
        self.base as f64 / self.dual.goal.max(1) as f64
    }

    /// Tell whether it rules out placements with at most this goal.
    pub fn refutes(&self, target: i64) -> bool {
        i128::from(self.base) > i128::from(self.dual.goal) * i128::from(target)
    }

    /// Return at most `most` of the placements: those in the mixture, then the last ones.
    pub fn pool(&self, most: usize) -> Vec<Vec<u8>> {
        let mixed = self.columns.iter().rev().filter(|(_, share)| *share > 0.0);
        let others = self.columns.iter().rev().filter(|(_, share)| *share <= 0.0);
        let chosen = mixed.chain(others).take(most);
        chosen.map(|(modes, _)| modes.clone()).collect()
    }

    /// Compute the share of each of an NF's modes in the mixture.
    pub fn shares(&self, nf: usize, modes: usize) -> Vec<f64> {
        let mut made = vec![0.0; modes];
        for (placement, share) in &self.columns {
            made[placement[nf] as usize] += share;
        }
        made
    }
}

/// Searches for the best multipliers of one program; None if its amounts are too large for 64 bits.
pub struct Ascender<'a> {
    program: &'a Program,
    cutter: Cutter<'a>,
}

impl<'a> Ascender<'a> {
    pub fn new(program: &'a Program) -> Self {
        Ascender {
            program,
            cutter: Cutter::new(program),
        }
    }

    /// Steer the weights until the bound is the best, or sufficient for the aim.
    pub fn run(&mut self, aim: Aim<'_>, deadline: Instant) -> Option<Ascent> {
        let mut columns = self.start(aim)?;
        let mut feasible = Vec::new();
        let penalty = if aim.goal {
            4.0 * self.program.goal.most().max(1) as f64
        } else {
            1.0
        };
        let mut master = Master::new(self.column(&columns[0], aim.goal), penalty);
        for modes in &columns[1..] {
            master.add(self.column(modes, aim.goal));
        }
        let mut best: Option<(f64, Ascent)> = None;
        let mut unmet = f64::INFINITY;
        for _ in 0..(80 + 8 * self.program.rows.len()).min(aim.most) {
            let mixture = master.solve();
            unmet = mixture.unmet;
            let (weights, goal) = self.whole(&mixture.weights, aim.goal)?;
            let scale = if aim.goal { goal } else { SCALE } as f64;
            let tried = self.cutter.run(&weights, goal, aim.pin);
            let bound = tried.base as f64 / scale;
            if best.as_ref().is_none_or(|(value, _)| bound > *value) {
                let (flows, base) = (tried.flows, tried.base);
                best = Some((
                    bound,
                    Ascent::of(
                        Dual {
                            weights,
                            goal,
                            flows,
                        },
                        base,
                    ),
                ));
            }
            let column = self.column(&tried.modes, aim.goal);
            if column.excess.iter().all(|excess| *excess <= 0.0) {
                feasible.push(tried.modes.clone());
            }
            let known = best.as_ref();
            let reached = known.map_or(f64::NEG_INFINITY, |(value, _)| *value);
            let done = aim
                .target
                .is_some_and(|target| known.is_some_and(|(_, ascent)| ascent.refutes(target)));
            let enough = aim
                .target
                .map_or(0.0, |target| 0.1 * (target as f64 - reached));
            let rest = mixture.value - reached;
            if done || rest < enough.max(1e-3 + 1e-8 * reached.abs()) || Instant::now() > deadline {
                break;
            }
            master.add(column);
            columns.push(tried.modes);
        }
        let (_, mut ascent) = best?;
        let mut shares = vec![0.0; columns.len()];
        master.mixed().for_each(|(c, level)| shares[c] = level);
        ascent.columns = columns.into_iter().zip(shares).collect();
        ascent.feasible = feasible;
        ascent.unmet = unmet;
        Some(ascent)
    }

    /// Return placements to start from: the pool's, or the one that ignores all rows.
    fn start(&mut self, aim: Aim<'_>) -> Option<Vec<Vec<u8>>> {
        if aim.pool.is_empty() {
            let zero = vec![0.0; self.program.rows.len()];
            let (weights, goal) = self.whole(&zero, true)?;
            return Some(vec![self.cutter.run(&weights, goal, aim.pin).modes]);
        }
        let mut columns = aim.pool.to_vec();
        if let Some((nf, mode)) = aim.pin {
            columns.iter_mut().for_each(|modes| modes[nf] = mode);
        }
        Some(columns)
    }

    /// Compute whole-number weights and the goal's multiplier, as fine as 64 bits allow.
    fn whole(&self, weights: &[f64], with_goal: bool) -> Option<(Vec<i64>, i64)> {
        let mut scale = SCALE;
        while scale > 0 {
            let round = |w: &f64| (w * scale as f64).round() as i64;
            let made: Vec<i64> = weights.iter().map(round).collect();
            let goal = if with_goal { scale } else { 0 };
            if self.cutter.fits(&made, goal) {
                return Some((made, goal));
            }
            scale >>= 2;
        }
        None
    }

    fn column(&self, modes: &[u8], with_goal: bool) -> Column {
        let program = self.program;
        let crossing = program.crossing(modes);
        let excess =
            |row: &crate::program::Row| (row.form.value(modes, &crossing) - row.limit) as f64;
        let goal = if with_goal {
            program.goal.value(modes, &crossing) as f64
        } else {
            0.0
        };
        Column {
            goal,
            excess: program.rows.iter().map(excess).collect(),
        }
    }
}

impl Ascent {
    fn of(dual: Dual, base: i64) -> Self {
        Ascent {
            dual,
            base,
            columns: Vec::new(),
            feasible: Vec::new(),
            unmet: 0.0,
        }
    }
}
