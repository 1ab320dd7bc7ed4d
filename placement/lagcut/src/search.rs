//! From a bound to a proven optimum: search for placements ever further above the bound.

use std::time::Instant;

use crate::core::Core;
use crate::dual::{self, Aim, Ascender};
use crate::labels::Plan;
use crate::primal::Workshop;
use crate::program::{Dual, Losses, Malformed, Program};
use crate::tree::{grow, Limits, Step};

/// The outcome.
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
    /// No placement has a lower goal.
    pub bound: i64,
    /// Multipliers of the whole, for its best bound.
    pub dual: Dual,
    /// The proof that nothing is below `bound`; empty: the multipliers alone prove it.
    pub proof: Vec<Step>,
}

/// Limits of memory and time.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub deadline: Instant,
    pub max_labels: usize,
    /// A placement within this fraction of the bound is sufficient.
    pub gap: f64,
}

/// Labels that the first walk keeps: with branching, and without.
const FIRST_LABELS: usize = 300;
const FIRST_LABELS_ALONE: usize = 2_000;
/// Limit of labels in a walk with branching.
const MOST_LABELS: usize = 20_000;
/// Limit of parts in the first tree.
const FIRST_NODES: usize = 400;
/// Labels of walks below the root.
const PART_LABELS: usize = 1000;
/// Open NFs above which a walk precedes branching: with many, nearly all targets are reachable, and a walk finds them.
const WIDE: usize = 128;
/// Growth of these limits after an attempt that settled nothing.
const MORE: usize = 6;
/// Targets this close to the bound are not refined.
const CLOSE: i64 = 3;
/// Placements to start from, and the number of them to polish.
const POOL: usize = 12;
const POLISHED: usize = 4;

/// Minimise a program's goal.
///
/// `given` are external multipliers; without them the program must have at most one sNIC. `start` is a placement to beat.
pub fn minimise(
    program: &Program,
    given: Option<Dual>,
    start: Option<Vec<u8>>,
    effort: Effort,
) -> Result<Found, Malformed> {
    program.check()?;
    let root = match given {
        Some(dual) => Root {
            dual,
            pool: None,
            seen: Vec::new(),
        },
        None if dual::applies(program) => Root::new(program, effort.deadline)?,
        None => return Err(Malformed::Dual),
    };
    let losses = Losses::new(program, &root.dual)?;
    let shop = Workshop::new(program, &losses);
    let mut seen = root.seen;
    seen.extend(start);
    let cheapest = [losses.cheapest()];
    let near = root.pool.as_deref().unwrap_or(&cheapest);
    seen.extend(
        near.iter()
            .take(POLISHED)
            .filter_map(|modes| shop.polish(modes)),
    );
    let feasible = seen.into_iter().filter(|modes| program.feasible(modes));
    Ok(Search {
        program,
        shop: &shop,
        base: losses.base,
        best: feasible.min_by_key(|modes| program.goal_value(modes)),
        labels: match root.pool {
            Some(_) => FIRST_LABELS,
            None => FIRST_LABELS_ALONE.min(effort.max_labels.max(1)),
        },
        nodes: FIRST_NODES,
        dual: root.dual,
        pool: root.pool,
        effort,
        proof: Vec::new(),
    }
    .run())
}

/// The best bound for the whole.
struct Root {
    dual: Dual,
    /// Placements from which other bounds start; None without branching.
    pool: Option<Vec<Vec<u8>>>,
    /// Placements that satisfy all rows.
    seen: Vec<Vec<u8>>,
}

impl Root {
    /// If no mixture satisfies the rows, the goal's multiplier is 0 and the bound proves it.
    fn new(program: &Program, deadline: Instant) -> Result<Self, Malformed> {
        let mut ascender = Ascender::new(program);
        let found = ascender
            .run(Aim::BOUND, deadline)
            .ok_or(Malformed::TooLarge)?;
        let dual = if found.unmet > 1e-6 {
            let aim = Aim {
                goal: false,
                ..Aim::BOUND
            };
            ascender.run(aim, deadline).ok_or(Malformed::TooLarge)?.dual
        } else {
            found.dual.clone()
        };
        Ok(Root {
            dual,
            pool: Some(found.pool(POOL)),
            seen: found.feasible,
        })
    }
}

struct Search<'a> {
    program: &'a Program,
    dual: Dual,
    shop: &'a Workshop<'a>,
    /// Return the best bound's base value.
    base: i64,
    effort: Effort,
    best: Option<Vec<u8>>,
    pool: Option<Vec<Vec<u8>>>,
    labels: usize,
    nodes: usize,
    /// Prove that nothing is below the bound.
    proof: Vec<Step>,
}

/// The result of one target.
struct Attempt {
    found: Option<Vec<u8>>,
    complete: bool,
    late: bool,
    /// The goal that is ruled out, if the attempt is complete.
    target: i64,
    proof: Vec<Step>,
}

impl Attempt {
    fn settles(&self) -> bool {
        self.found.is_some() || self.complete || self.late
    }
}

impl Search<'_> {
    fn run(mut self) -> Found {
        let most = self.program.goal.most();
        let mut lower = self.first_bound(most);
        let mut step = 1 + (lower / 4000).max((4.0 * self.effort.gap * lower.max(0) as f64) as i64);
        let mut widen = 2;
        loop {
            let upper = self.value().map_or(most, |value| value - 1);
            if lower > upper {
                let outcome = match self.best {
                    Some(_) => Outcome::Optimal,
                    None => Outcome::Infeasible,
                };
                return self.found(outcome, lower);
            }
            if self.close(lower) {
                return self.stopped(lower);
            }
            let enough = self.good_enough(upper).max(lower);
            let target = enough.min(lower.saturating_add(step));
            let Ok(attempt) = self.attempt(target) else {
                return self.stopped(lower);
            };
            let improved = attempt.found.is_some();
            let found = attempt
                .found
                .map(|modes| self.shop.polish(&modes).unwrap_or(modes));
            self.best = found.or(self.best.take());
            if attempt.complete {
                self.proof = attempt.proof;
            }
            match (attempt.complete, improved) {
                (true, true) => lower = attempt.target + 1,
                (true, false) => {
                    lower = attempt.target + 1;
                    step = step.saturating_mul(widen).max(1);
                }
                (false, true) => {}
                (false, false) if self.pool.is_none() && self.labels >= self.effort.max_labels => {
                    return self.stopped(lower)
                }
                (false, false) => {
                    let most = match self.pool {
                        Some(_) => MOST_LABELS,
                        None => self.effort.max_labels,
                    };
                    self.labels = (self.labels * MORE).min(most);
                    self.nodes = self.nodes.saturating_mul(MORE);
                    if target - lower > CLOSE {
                        step = (target - lower) / 2;
                    }
                    widen = 1;
                }
            }
            if attempt.late {
                return self.stopped(lower);
            }
        }
    }

    /// Search for placements whose goal is at most `target`: a walk, then branching.
    fn attempt(&self, target: i64) -> Result<Attempt, Malformed> {
        let core = Core::new(self.program, &self.dual, target)?;
        let Some(pool) = &self.pool else {
            return Ok(self.walk(&core, target));
        };
        if core.order.len() > WIDE {
            let attempt = self.walk(&core, target);
            if attempt.settles() {
                return Ok(attempt);
            }
        }
        let attempt = self.branch(target, pool)?;
        if attempt.settles() || core.order.len() > WIDE {
            return Ok(attempt);
        }
        Ok(self.walk(&core, target))
    }

    fn walk(&self, core: &Core, target: i64) -> Attempt {
        let walk = Plan::new(self.program, core, target).walk(self.labels, self.effort.deadline);
        let goal = |modes: &Vec<u8>| self.program.goal_value(modes) - 1;
        let target = walk.found.as_ref().map_or(target, goal);
        Attempt {
            found: walk.found,
            complete: walk.complete,
            late: walk.late,
            target,
            proof: vec![Step::Walk {
                order: core.full_order(),
                dual: core.bound.dual.clone(),
            }],
        }
    }

    fn branch(&self, target: i64, pool: &[Vec<u8>]) -> Result<Attempt, Malformed> {
        let limits = Limits {
            deadline: self.effort.deadline,
            nodes: self.nodes,
            labels: PART_LABELS,
            gap: self.effort.gap,
        };
        let grown = grow(self.program, target, pool, limits)?;
        Ok(Attempt {
            late: !grown.complete && Instant::now() > self.effort.deadline,
            found: grown.found,
            complete: grown.complete,
            target: grown.target,
            proof: grown.proof,
        })
    }

    fn value(&self) -> Option<i64> {
        self.best
            .as_ref()
            .map(|modes| self.program.goal_value(modes))
    }

    /// Return the goal that, once ruled out, makes anything below `upper` irrelevant.
    fn good_enough(&self, upper: i64) -> i64 {
        match self.best {
            Some(_) => upper - (self.effort.gap * (upper + 1) as f64) as i64,
            None => upper,
        }
    }

    fn close(&self, lower: i64) -> bool {
        self.value()
            .is_some_and(|value| (value - lower) as f64 <= self.effort.gap * value as f64)
    }

    /// Return the least goal that the multipliers alone do not rule out.
    fn first_bound(&self, most: i64) -> i64 {
        match self.dual.goal {
            0 if self.base > 0 => most + 1,
            0 => 0,
            goal => {
                // base - goal * target > 0 rules the target out.
                let (quotient, rest) = (self.base.div_euclid(goal), self.base.rem_euclid(goal));
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
        Found {
            outcome,
            modes: self.best,
            bound,
            dual: self.dual,
            proof: self.proof,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{minimise, Effort, Outcome};
    use crate::program::{Form, Program, Row};
    use crate::tree::{grow, Limits, Step};
    use std::time::{Duration, Instant};

    fn effort() -> Effort {
        Effort {
            deadline: Instant::now() + Duration::from_secs(60),
            max_labels: 100_000,
            gap: 0.0,
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
        let sites = (0..count).map(|_| [0, 1]).collect();
        let mut arcs = Vec::new();
        let (mut link, mut cores, mut goal) = (Form::default(), Form::default(), Form::default());
        for i in 0..count {
            goal.push(i, [random.below(1000), 0]);
            cores.push(i, [0, random.below(1000)]);
            link.push(i, [random.below(300), random.below(300)]);
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

    /// With one label at a time, walks settle nothing and the splits do all the work.
    #[test]
    fn splits_alone_agree_with_trying_everything() {
        let mut source = Random(362436069);
        let (limits, mut splits) = (alone(), 0);
        for round in 0..2000 {
            let program = random(&mut source);
            let most = program.goal.most();
            let grown = grow(&program, most, &[], limits).unwrap();
            assert!(grown.complete, "round {round}");
            let value = grown.found.map(|modes| program.goal_value(&modes));
            assert_eq!(value, by_force(&program), "round {round}: {program:?}");
            let split = |step: &&Step| matches!(step, Step::Split { .. });
            splits += grown.proof.iter().filter(split).count();
        }
        assert!(splits > 1000);
    }

    fn alone() -> Limits {
        Limits {
            deadline: Instant::now() + Duration::from_secs(60),
            nodes: usize::MAX,
            labels: 1,
            gap: 0.0,
        }
    }
}
