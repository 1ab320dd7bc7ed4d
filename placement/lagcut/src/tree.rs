//! Branch and bound: bound, close modes, walk small parts, split the others.

use std::time::Instant;

use crate::core::Core;
use crate::dual::{Aim, Ascender, Ascent};
use crate::labels::Plan;
use crate::lists::Lists;
use crate::primal::Workshop;
use crate::program::{Dual, Losses, Malformed, Program};
use crate::reduce::{pinned, project, Part};

/// One step of a proof, in preorder; NFs and modes are those of the whole program, multipliers those of the part.
#[derive(Clone, Debug)]
pub enum Step {
    /// Under these multipliers no placement at the target has any of these modes.
    Close {
        dual: Dual,
        closed: Vec<(usize, u8)>,
    },
    /// Every placement has one of these modes of this NF; a proof for each follows.
    Split { nf: usize, modes: Vec<u8> },
    /// Under these multipliers a walk over the NFs in this order leaves nothing open.
    Walk { dual: Dual, order: Vec<usize> },
}

/// Limits of the search.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub deadline: Instant,
    pub nodes: usize,
    /// Labels to keep in a walk.
    pub labels: usize,
    /// A placement within this fraction of the bound is sufficient.
    pub gap: f64,
}

/// The result.
pub struct Grown {
    /// A placement at or below the target.
    pub found: Option<Vec<u8>>,
    /// The search was complete.
    pub complete: bool,
    /// The goal that is then ruled out: no placement except `found` has this goal or less.
    pub target: i64,
    pub proof: Vec<Step>,
    pub nodes: usize,
}

/// Maximum depth of splits.
const DEEPEST: usize = 400;
/// Placements from which a part starts its bound.
const POOL: usize = 12;
/// Parts between two searches for placements, least number of NFs in such a part, and placements to start from.
const POLISH_EVERY: usize = 16;
const POLISH_NFS: usize = 40;
const POLISHED: usize = 2;
/// NFs up to which a part is walked rather than split.
const WALK_NFS: usize = 20;
/// NFs to try before a split.
const CANDIDATES: usize = 12;
/// The same for small parts, in which a poor choice costs less.
const FEW_CANDIDATES: usize = 6;
const MANY_NFS: usize = 40;
/// NFs above which a part tries none, because that takes too long.
const TRIED_NFS: usize = 200;
/// Trials of weights for each of their modes.
const TRIALS: usize = 3;

/// Search for the best placement whose goal is at most `target`, starting from some placements.
pub fn grow(
    whole: &Program,
    target: i64,
    pool: &[Vec<u8>],
    limits: Limits,
) -> Result<Grown, Malformed> {
    let mut tree = Tree {
        target,
        found: None,
        limits,
        nodes: 0,
        polish_at: POLISH_EVERY,
        stopped: false,
        proof: Vec::new(),
    };
    tree.node(Part::whole(whole), pool.to_vec(), 0)?;
    Ok(Grown {
        found: tree.found,
        complete: !tree.stopped,
        target: tree.target,
        proof: tree.proof,
        nodes: tree.nodes,
    })
}

struct Tree {
    target: i64,
    found: Option<Vec<u8>>,
    limits: Limits,
    nodes: usize,
    /// The number of parts at which to search for placements again.
    polish_at: usize,
    stopped: bool,
    proof: Vec<Step>,
}

/// The next action for an undecided part.
enum Split {
    /// Rule one mode out by these multipliers (of the part without that NF).
    Ruled(usize, u8, Dual),
    /// Split by the modes of this NF, the more likely first.
    Into(usize, Vec<u8>),
}

impl Tree {
    fn node(
        &mut self,
        mut part: Part,
        mut pool: Vec<Vec<u8>>,
        depth: usize,
    ) -> Result<(), Malformed> {
        loop {
            self.nodes += 1;
            if self.nodes > self.limits.nodes
                || depth > DEEPEST
                || Instant::now() > self.limits.deadline
            {
                self.stopped = true;
                return Ok(());
            }
            if part.nfs.is_empty() {
                self.leaf(&part);
                return Ok(());
            }
            let mut ascender = Ascender::new(&part.program);
            let aim = Aim {
                target: Some(self.target - part.goal),
                pool: &pool,
                ..Aim::BOUND
            };
            let ascent = self.ascend(&part, &mut ascender, aim)?;
            pool = ascent.pool(POOL);
            if part.nfs.len() > POLISH_NFS && self.nodes >= self.polish_at {
                self.polish_at = self.nodes + POLISH_EVERY;
                self.polish(&part, &ascent.dual, &pool)?;
            }
            if ascent.refutes(self.target - part.goal) {
                self.refute(ascent.dual, part.nfs);
                return Ok(());
            }
            let open = match self.close(&part, &ascent.dual)? {
                Some(open) => open,
                None if part.nfs.len() <= WALK_NFS && self.walk(&part, &ascent.dual)? => {
                    return Ok(())
                }
                None => match self.choose(&part, &ascent, &mut ascender, &pool)? {
                    Split::Ruled(nf, mode, dual) => self.rule_out(&part, nf, mode, dual),
                    Split::Into(nf, modes) => return self.split(&part, nf, &modes, &pool, depth),
                },
            };
            pool = pool.iter().map(|modes| project(modes, &open)).collect();
            part = part.keep(&open);
        }
    }

    fn split(
        &mut self,
        part: &Part,
        nf: usize,
        modes: &[u8],
        pool: &[Vec<u8>],
        depth: usize,
    ) -> Result<(), Malformed> {
        self.proof.push(Step::Split {
            nf: part.nfs[nf],
            modes: modes.iter().map(|&m| part.modes[nf][m as usize]).collect(),
        });
        for &mode in modes {
            let open = pinned(&part.program, nf, mode);
            let below = pool.iter().map(|modes| project(modes, &open)).collect();
            self.node(part.keep(&open), below, depth + 1)?;
            if self.stopped {
                break;
            }
        }
        Ok(())
    }

    /// Record a split with one refuted side, and return the modes that remain open.
    fn rule_out(&mut self, part: &Part, nf: usize, mode: u8, dual: Dual) -> Lists<u8> {
        let left: Vec<u8> = (0..part.modes[nf].len() as u8)
            .filter(|&m| m != mode)
            .collect();
        self.proof.push(Step::Split {
            nf: part.nfs[nf],
            modes: vec![part.modes[nf][mode as usize]],
        });
        let others = part.nfs.iter().copied().filter(|&i| i != part.nfs[nf]);
        self.refute(dual, others.collect());
        let modes = |(i, modes): (usize, &[u8])| {
            if i == nf {
                left.clone()
            } else {
                (0..modes.len() as u8).collect()
            }
        };
        part.modes.iter().enumerate().map(modes).collect()
    }

    fn offer(&mut self, part: &Part, modes: &[u8]) {
        let value = part.program.goal_value(modes) + part.goal;
        if value <= self.target && part.program.feasible(modes) {
            self.found = Some(part.lift(modes));
            self.target = value - 1 - (self.limits.gap * value as f64) as i64;
        }
    }

    fn ascend(
        &mut self,
        part: &Part,
        ascender: &mut Ascender<'_>,
        aim: Aim<'_>,
    ) -> Result<Ascent, Malformed> {
        let ascent = ascender
            .run(aim, self.limits.deadline)
            .ok_or(Malformed::TooLarge)?;
        for modes in &ascent.feasible {
            self.offer(part, modes);
        }
        Ok(ascent)
    }

    fn refute(&mut self, dual: Dual, order: Vec<usize>) {
        self.proof.push(Step::Walk { dual, order });
    }

    /// Handle a settled part: a placement, or a limit that it breaks.
    fn leaf(&mut self, part: &Part) {
        self.offer(part, &[]);
        let rows = &part.program.rows;
        let broken = rows.iter().position(|row| row.limit < 0);
        let dual = Dual {
            weights: (0..rows.len())
                .map(|r| i64::from(Some(r) == broken))
                .collect(),
            goal: i64::from(broken.is_none()),
            flows: Vec::new(),
        };
        self.refute(dual, Vec::new());
    }

    /// Return the modes that the multipliers leave open, if they close any, or if NFs without a choice can be settled.
    fn close(&mut self, part: &Part, dual: &Dual) -> Result<Option<Lists<u8>>, Malformed> {
        let losses = Losses::new(&part.program, dual)?;
        let base = losses.base - dual.goal * (self.target - part.goal);
        let mut closed = Vec::new();
        let mut left = Lists::with_capacity(part.nfs.len(), part.modes.items().len());
        for (i, losses) in losses.mode.iter().enumerate() {
            let stays = |m: &u8| base + losses[*m as usize] <= 0;
            let modes = 0..losses.len() as u8;
            let gone = modes.clone().filter(|m| !stays(m));
            closed.extend(gone.map(|m| (part.nfs[i], part.modes[i][m as usize])));
            left.push(modes.filter(stays));
        }
        if closed.is_empty() && part.modes.iter().all(|modes| modes.len() > 1) {
            return Ok(None);
        }
        self.proof.push(Step::Close {
            dual: dual.clone(),
            closed,
        });
        Ok(Some(left))
    }

    /// Search for placements near those that the bound came from.
    fn polish(&mut self, part: &Part, dual: &Dual, pool: &[Vec<u8>]) -> Result<(), Malformed> {
        let losses = Losses::new(&part.program, dual)?;
        let shop = Workshop::new(&part.program, &losses);
        for modes in pool.iter().take(POLISHED) {
            if let Some(better) = shop.polish(modes) {
                self.offer(part, &better);
            }
        }
        Ok(())
    }

    /// Enumerate a small part, and tell whether that settled it.
    fn walk(&mut self, part: &Part, dual: &Dual) -> Result<bool, Malformed> {
        let target = self.target - part.goal;
        let core = Core::new(&part.program, dual, target)?;
        let walk =
            Plan::new(&part.program, &core, target).walk(self.limits.labels, self.limits.deadline);
        if let Some(modes) = &walk.found {
            self.offer(part, modes);
        }
        if walk.complete {
            self.proof.push(Step::Walk {
                order: core.full_order().iter().map(|&i| part.nfs[i]).collect(),
                dual: core.bound.dual,
            });
        }
        Ok(walk.complete)
    }

    /// Try the NFs that the best mixture divides: choose the one whose bounds rise most, or one with a mode that is ruled out.
    fn choose(
        &mut self,
        part: &Part,
        ascent: &Ascent,
        ascender: &mut Ascender<'_>,
        pool: &[Vec<u8>],
    ) -> Result<Split, Malformed> {
        let sites = &part.program.sites;
        let ranked = divided(&part.program, ascent);
        let mut best = (f64::NEG_INFINITY, ranked[0]);
        let candidates = match part.nfs.len() {
            small if small < MANY_NFS => FEW_CANDIDATES,
            many if many <= TRIED_NFS => CANDIDATES,
            _ => 0,
        };
        for nf in ranked.into_iter().take(candidates) {
            let mut score = 1.0;
            for mode in 0..sites[nf].len() as u8 {
                let aim = Aim {
                    target: Some(self.target - part.goal),
                    pin: Some((nf, mode)),
                    pool,
                    most: TRIALS,
                    ..Aim::BOUND
                };
                let tried = self.ascend(part, ascender, aim)?;
                if tried.refutes(self.target - part.goal) {
                    return Ok(Split::Ruled(nf, mode, part.without(nf, &tried.dual)));
                }
                let gap = (self.target - part.goal) as f64 + 1.0 - ascent.value();
                score *= ((tried.value() - ascent.value()) / gap).clamp(1e-4, 1.0);
            }
            if score > best.0 {
                best = (score, nf);
            }
        }
        let shares = ascent.shares(best.1, sites[best.1].len());
        let mut modes: Vec<u8> = (0..shares.len() as u8).collect();
        modes.sort_by(|&a, &b| shares[b as usize].total_cmp(&shares[a as usize]));
        Ok(Split::Into(best.1, modes))
    }
}

/// Order NFs by how evenly the best mixture divides them and by their use of the binding rows, descending.
fn divided(program: &Program, ascent: &Ascent) -> Vec<usize> {
    let mut size = vec![1_i64; program.sites.len()];
    for (weight, row) in ascent
        .dual
        .weights
        .iter()
        .zip(&program.rows)
        .filter(|(w, _)| **w > 0)
    {
        for (i, coefs) in row.form.choice() {
            let ends = (coefs.iter().min(), coefs.iter().max());
            size[i] += weight * (ends.1.unwrap_or(&0) - ends.0.unwrap_or(&0));
        }
        for (a, coef) in &row.form.cross {
            let (i, j, _) = program.arcs[*a];
            size[i] += weight * coef / 2;
            size[j] += weight * coef / 2;
        }
    }
    let mut ranked: Vec<(f64, usize)> = (0..program.sites.len())
        .map(|i| {
            let shares = ascent.shares(i, program.sites[i].len());
            let top = shares.iter().copied().fold(0.0, f64::max);
            ((1.0 - top + 1e-6) * size[i] as f64, i)
        })
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    ranked.into_iter().map(|(_, i)| i).collect()
}
