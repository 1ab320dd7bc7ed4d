//! The best bound that weights on the rows give, for one sNIC: each trial is a minimum cut.

use std::time::Instant;

use crate::master::{Column, Master};
use crate::maxflow::Network;
use crate::primal::improve;
use crate::program::{fits, weighted, Dual, Program};

/// One goal unit in the whole-number multipliers, where the amounts allow it.
pub const SCALE: i64 = 1 << 20;

/// How many multipliers a walk looks at besides the best ones.
const MAX_VARIATIONS: usize = 4;

/// Cuts whose parts a placement may take over.
const RECENT: usize = 4;

/// A trial's outcome.
struct Cut {
    modes: Vec<u8>,
    flows: Vec<i64>,
    bound: i64,
}

/// Whether the relaxation is a minimum cut: at most one sNIC.
pub fn applies(program: &Program) -> bool {
    program.sites.iter().flatten().all(|site| *site <= 1)
}

/// Minimise the weighted program over all placements.
fn cut(program: &Program, weights: &[i64], goal: i64) -> Cut {
    let (alpha, crossed) = weighted(program, weights, goal);
    let count = program.sites.len();
    let (source, sink) = (count, count + 1);
    let mut best = Vec::with_capacity(count);
    let mut edges = Vec::with_capacity(count + program.arcs.len());
    let mut base = 0;
    for (i, values) in alpha.iter().enumerate() {
        let mut at: [Option<(i64, u8)>; 2] = [None, None];
        for (m, (value, site)) in values.iter().zip(&program.sites[i]).enumerate() {
            let slot = &mut at[*site as usize];
            if slot.is_none_or(|(low, _)| *value < low) {
                *slot = Some((*value, m as u8));
            }
        }
        // A location without a mode is priced out: no flow can reach this capacity.
        let far = i64::MAX / 4;
        let (host, nic) = (at[0].map_or(far, |v| v.0), at[1].map_or(far, |v| v.0));
        base += host.min(nic);
        let (toward_nic, toward_host) = match (at[0], at[1]) {
            (Some(_), Some(_)) => ((host - nic).max(0), (nic - host).max(0)),
            (None, _) => (far, 0),
            (_, None) => (0, far),
        };
        if toward_nic > 0 {
            edges.push((source, i, toward_nic, 0));
        } else {
            edges.push((i, sink, toward_host, 0));
        }
        best.push(at);
    }
    let arcs_from = edges.len();
    for (&(i, j, _), &capacity) in program.arcs.iter().zip(&crossed) {
        edges.push((i, j, capacity, 0));
    }
    let mut network = Network::new(count + 2, &edges);
    let value = network.run(source, sink);
    let modes = (0..count)
        .map(|i| best[i][usize::from(network.reached(i))].map_or(0, |v| v.1))
        .collect();
    let flows = crossed
        .iter()
        .enumerate()
        .map(|(a, capacity)| (capacity - network.left(arcs_from + a)).max(0))
        .collect();
    let slack: i64 = program
        .rows
        .iter()
        .zip(weights)
        .map(|(row, w)| w * row.limit)
        .sum();
    Cut {
        modes,
        flows,
        bound: base + value - slack,
    }
}

/// Whole-number weights and the goal's multiplier, as fine as 64 bits allow.
fn whole(program: &Program, weights: &[f64], with_goal: bool) -> Option<(Vec<i64>, i64)> {
    let mut scale = SCALE;
    while scale > 0 {
        let made: Vec<i64> = weights
            .iter()
            .map(|w| (w * scale as f64).round() as i64)
            .collect();
        let goal = if with_goal { scale } else { 0 };
        if fits(program, &made, goal) {
            return Some((made, goal));
        }
        scale >>= 2;
    }
    None
}

fn column(program: &Program, modes: &[u8], with_goal: bool) -> Column {
    let crossing = program.crossing(modes);
    Column {
        goal: if with_goal {
            program.goal.value(modes, &crossing) as f64
        } else {
            0.0
        },
        excess: program
            .rows
            .iter()
            .map(|row| (row.form.value(modes, &crossing) - row.limit) as f64)
            .collect(),
    }
}

/// The best multipliers found, and the best placement seen on the way that satisfies all rows.
pub struct Bounded {
    pub dual: Dual,
    pub modes: Option<Vec<u8>>,
}

/// Maximise the bound. Where no mixture satisfies the rows, the goal's multiplier is 0 and the bound proves it.
pub fn bound(program: &Program, deadline: Instant) -> Option<Bounded> {
    let most = program.goal.most().max(1) as f64;
    let (found, unmet) = ascend(program, true, 4.0 * most, deadline)?;
    if unmet <= 1e-6 {
        return Some(found);
    }
    let (refuted, _) = ascend(program, false, 1.0, deadline)?;
    Some(Bounded {
        dual: refuted.dual,
        modes: found.modes,
    })
}

fn ascend(
    program: &Program,
    with_goal: bool,
    penalty: f64,
    deadline: Instant,
) -> Option<(Bounded, f64)> {
    let zero = vec![0.0; program.rows.len()];
    let (weights, goal) = whole(program, &zero, true)?;
    let first = cut(program, &weights, goal);
    let mut master = Master::new(column(program, &first.modes, with_goal), penalty);
    let mut incumbent = Incumbent::default();
    incumbent.offer(program, &first.modes);
    let mut best: Option<(f64, Dual)> = None;
    let mut unmet = f64::INFINITY;
    let mut recent: Vec<Vec<u8>> = Vec::new();
    for _ in 0..80 + 8 * program.rows.len() {
        let mixture = master.solve();
        unmet = mixture.unmet;
        let (weights, goal) = whole(program, &mixture.weights, with_goal)?;
        let scale = if with_goal { goal } else { SCALE } as f64;
        let tried = cut(program, &weights, goal);
        let bound = tried.bound as f64 / scale;
        if best.as_ref().is_none_or(|(value, _)| bound > *value) {
            best = Some((
                bound,
                Dual {
                    weights,
                    goal,
                    flows: tried.flows,
                },
            ));
        }
        let reached = best.as_ref().map_or(f64::NEG_INFINITY, |(value, _)| *value);
        if mixture.value - reached < 1e-3 + 1e-8 * reached.abs() || Instant::now() > deadline {
            break;
        }
        incumbent.offer(program, &tried.modes);
        recent.push(tried.modes.clone());
        master.add(column(program, &tried.modes, with_goal));
    }
    let (_, dual) = best?;
    if let Some(modes) = incumbent.modes.take() {
        let last = recent.len().saturating_sub(RECENT);
        incumbent.modes = Some(improve(program, &modes, &recent[last..]));
    }
    Some((
        Bounded {
            dual,
            modes: incumbent.modes,
        },
        unmet,
    ))
}

/// Factors on one weight at a time.
const FACTORS: [f64; 2] = [0.8, 1.25];

/// Multipliers near the best ones. For a partial placement that has used more or less of a row than the best mixture
/// does, one of them bounds its completion better.
pub fn variations(program: &Program, best: &Dual) -> Vec<Dual> {
    let mut made = Vec::new();
    for (r, _) in best.weights.iter().enumerate().filter(|(_, w)| **w > 0) {
        for factor in FACTORS {
            let mut weights = best.weights.clone();
            weights[r] = (weights[r] as f64 * factor) as i64;
            if fits(program, &weights, best.goal) && made.len() < MAX_VARIATIONS {
                let flows = cut(program, &weights, best.goal).flows;
                made.push(Dual {
                    weights,
                    goal: best.goal,
                    flows,
                });
            }
        }
    }
    made
}

/// The best placement seen that satisfies all rows.
#[derive(Default)]
struct Incumbent {
    modes: Option<Vec<u8>>,
    value: i64,
}

impl Incumbent {
    fn offer(&mut self, program: &Program, modes: &[u8]) {
        let value = program.goal_value(modes);
        if (self.modes.is_none() || value < self.value) && program.feasible(modes) {
            self.modes = Some(modes.to_vec());
            self.value = value;
        }
    }
}
