//! From a bound to a proven optimum: look for placements just above the bound, further and further.

use std::time::Instant;

use crate::core::Core;
use crate::dual;
use crate::labels::Plan;
use crate::program::{Dual, Losses, Malformed, Program};

/// What is known in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Optimal,
    Feasible,
    Infeasible,
    Unknown,
}

/// An answer and its proof.
#[derive(Clone, Debug)]
pub struct Found {
    pub outcome: Outcome,
    pub modes: Option<Vec<u8>>,
    /// No placement has less of the goal.
    pub bound: i64,
    /// Multipliers, those of the best bound first, and the order of NFs: together they prove `bound`.
    pub duals: Vec<Dual>,
    pub order: Vec<usize>,
}

/// How much may be kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub deadline: Instant,
    pub max_labels: usize,
    /// Only placements whose goal is below this are of interest.
    pub cutoff: i64,
    /// A placement within this fraction of the bound is good enough.
    pub gap: f64,
}

const FIRST_CAP: usize = 2_000;

/// Minimise a program's goal.
///
/// `given` are multipliers from elsewhere; without them there must be at most one sNIC. `start` is a placement to beat.
pub fn minimise(
    program: &Program,
    given: Option<Dual>,
    start: Option<Vec<u8>>,
    effort: Effort,
) -> Result<Found, Malformed> {
    program.check()?;
    let (dual, seen) = match given {
        Some(dual) => (dual, None),
        None if dual::applies(program) => match dual::bound(program, effort.deadline) {
            Some(bounded) => (bounded.dual, bounded.modes),
            None => return Err(Malformed::TooLarge),
        },
        None => return Err(Malformed::Dual),
    };
    let losses = Losses::new(program, &dual)?;
    let mut duals = vec![dual];
    if dual::applies(program) {
        duals.extend(dual::variations(program, &duals[0]));
    }
    let best = [start, seen]
        .into_iter()
        .flatten()
        .filter(|modes| program.feasible(modes))
        .min_by_key(|modes| program.goal_value(modes));
    Ok(Search {
        program,
        duals,
        losses,
        effort,
        best,
        proof: (Vec::new(), Vec::new()),
    }
    .run())
}

struct Search<'a> {
    program: &'a Program,
    duals: Vec<Dual>,
    losses: Losses,
    effort: Effort,
    best: Option<Vec<u8>>,
    /// Multipliers and order of the last walk.
    proof: (Vec<Dual>, Vec<usize>),
}

impl Search<'_> {
    fn run(mut self) -> Found {
        let most = self.program.goal.most();
        let mut lower = self.first_bound(most);
        let mut cap = FIRST_CAP.min(self.effort.max_labels.max(1));
        let mut step = 1 + (lower / 4000).max((self.effort.gap * lower.max(0) as f64) as i64);
        loop {
            let upper = self
                .best
                .as_ref()
                .map_or(most, |modes| self.program.goal_value(modes) - 1)
                .min(self.effort.cutoff.saturating_sub(1));
            if lower <= upper && self.close(lower) {
                return self.stopped(lower);
            }
            if lower > upper {
                let outcome = if self.best.is_some() {
                    Outcome::Optimal
                } else {
                    Outcome::Infeasible
                };
                return self.found(outcome, lower);
            }
            let target = upper.min(lower.saturating_add(step));
            let core = match Core::new(self.program, &self.duals, target) {
                Ok(core) => core,
                Err(_) => return self.stopped(lower),
            };
            self.proof = (
                core.bounds.iter().map(|bound| bound.dual.clone()).collect(),
                core.full_order(),
            );
            let plan = Plan::new(self.program, &core, target);
            let walk = plan.walk(cap, self.effort.deadline);
            let improved = walk.found.is_some();
            if let Some(modes) = walk.found {
                self.best = Some(modes);
            }
            match (walk.complete, improved) {
                (true, true) => {
                    lower = self
                        .best
                        .as_ref()
                        .map_or(lower, |modes| self.program.goal_value(modes));
                }
                (true, false) => {
                    lower = target + 1;
                    step = step.saturating_mul(3);
                }
                (false, true) => {}
                (false, false) if cap >= self.effort.max_labels => return self.stopped(lower),
                (false, false) => {
                    cap = (cap * 6).min(self.effort.max_labels);
                    step = (step / 2).max(1);
                }
            }
            if walk.late {
                return self.stopped(lower);
            }
        }
    }

    fn close(&self, lower: i64) -> bool {
        let value = self
            .best
            .as_ref()
            .map(|modes| self.program.goal_value(modes));
        value.is_some_and(|value| (value - lower) as f64 <= self.effort.gap * value as f64)
    }

    /// The least goal that the multipliers alone do not rule out.
    fn first_bound(&self, most: i64) -> i64 {
        match self.duals[0].goal {
            0 if self.losses.base > 0 => most + 1,
            0 => 0,
            goal => {
                // base - goal * target > 0 rules the target out.
                let (quotient, rest) = (
                    self.losses.base.div_euclid(goal),
                    self.losses.base.rem_euclid(goal),
                );
                quotient + i64::from(rest > 0)
            }
        }
    }

    fn stopped(self, lower: i64) -> Found {
        let outcome = if self.best.is_some() {
            Outcome::Feasible
        } else {
            Outcome::Unknown
        };
        self.found(outcome, lower)
    }

    fn found(self, outcome: Outcome, bound: i64) -> Found {
        let (mut duals, mut order) = self.proof;
        if order.is_empty() {
            (duals, order) = (self.duals, (0..self.program.sites.len()).collect());
        }
        Found {
            outcome,
            modes: self.best,
            bound,
            duals,
            order,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{minimise, Effort, Outcome};
    use crate::program::{Form, Program, Row};
    use std::time::{Duration, Instant};

    fn effort() -> Effort {
        Effort {
            deadline: Instant::now() + Duration::from_secs(60),
            max_labels: 100_000,
            gap: 0.0,
            cutoff: i64::MAX,
        }
    }

    /// A generator of pseudo-random numbers (xorshift), so that tests need no dependency.
    struct Random(u64);

    impl Random {
        fn below(&mut self, top: u64) -> i64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % top) as i64
        }
    }

    fn random(random: &mut Random) -> Program {
        let count = 1 + random.below(9) as usize;
        let sites = vec![vec![0, 1]; count];
        let mut arcs = Vec::new();
        let (mut link, mut cores, mut goal) = (Form::default(), Form::default(), Form::default());
        for i in 0..count {
            goal.choice.push((i, vec![random.below(1000), 0]));
            cores.choice.push((i, vec![0, random.below(1000)]));
            link.choice
                .push((i, vec![random.below(300), random.below(300)]));
            for j in 0..i {
                if random.below(3) == 0 {
                    let traffic = random.below(400);
                    for arc in [(i, j, 1), (j, i, 1)] {
                        link.cross.push((arcs.len(), traffic));
                        arcs.push(arc);
                    }
                }
            }
        }
        let (wide, deep) = (link.most(), cores.most());
        let rows = vec![
            Row {
                form: link,
                limit: random.below(wide as u64 + 1),
            },
            Row {
                form: cores,
                limit: random.below(deep as u64 + 1),
            },
        ];
        Program {
            sites,
            arcs,
            rows,
            goal,
        }
    }

    fn by_force(program: &Program) -> Option<i64> {
        let count = program.sites.len();
        (0..1_u32 << count)
            .map(|bits| {
                (0..count)
                    .map(|i| (bits >> i & 1) as u8)
                    .collect::<Vec<u8>>()
            })
            .filter(|modes| program.feasible(modes))
            .map(|modes| program.goal_value(&modes))
            .min()
    }

    #[test]
    fn agrees_with_trying_everything() {
        let mut source = Random(88172645463325252);
        for round in 0..2000 {
            let program = random(&mut source);
            let found = minimise(&program, None, None, effort()).unwrap();
            let value = found.modes.as_ref().map(|modes| program.goal_value(modes));
            assert_eq!(value, by_force(&program), "round {round}: {program:?}");
            let expected = if value.is_some() {
                Outcome::Optimal
            } else {
                Outcome::Infeasible
            };
            assert_eq!(found.outcome, expected, "round {round}");
        }
    }
}
