//! The small linear program that steers the weights (Dantzig-Wolfe): mix the placements seen so far so that the mixture
//! satisfies every row at the least goal; its dual values are the next weights.

const EPS: f64 = 1e-9;
/// Pivots after which the inverse is recomputed, against rounding.
const REFACTOR: usize = 50;

/// A known placement: its goal, and per row its use less the limit.
#[derive(Clone, Debug)]
pub struct Column {
    pub goal: f64,
    pub excess: Vec<f64>,
}

/// The result: a mixture of placements.
#[derive(Clone, Debug)]
pub struct Mixture {
    /// Weight per row, at least 0.
    pub weights: Vec<f64>,
    /// The mixture's goal, penalties included.
    pub value: f64,
    /// Excess that no mixture of these placements removes.
    pub unmet: f64,
}

/// A basic variable: a placement, a row's slack, or a row's penalised excess.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Basic {
    Column(usize),
    Slack(usize),
    Excess(usize),
}

/// The program over the known placements, solved by the primal simplex method with an explicit inverse.
pub struct Master {
    rows: usize,
    penalty: f64,
    columns: Vec<Column>,
    basis: Vec<Basic>,
    /// Square, row by row.
    inverse: Vec<f64>,
    level: Vec<f64>,
    prices: Vec<f64>,
    pivots: usize,
}

impl Master {
    /// Start from one placement; `penalty` is the price of one unit of excess.
    pub fn new(first: Column, penalty: f64) -> Self {
        let rows = first.excess.len();
        let basis = (0..rows)
            .map(|r| {
                if first.excess[r] > 0.0 {
                    Basic::Excess(r)
                } else {
                    Basic::Slack(r)
                }
            })
            .chain(std::iter::once(Basic::Column(0)))
            .collect();
        let mut master = Master {
            rows,
            penalty,
            columns: vec![first],
            basis,
            inverse: Vec::new(),
            level: Vec::new(),
            prices: Vec::new(),
            pivots: 0,
        };
        master.refactor();
        master
    }

    /// Add a placement.
    pub fn add(&mut self, column: Column) {
        self.columns.push(column);
    }

    /// Compute a variable's coefficients: per row, then in the equation that shares add up to 1.
    fn vector(&self, basic: Basic) -> Vec<f64> {
        let mut made = vec![0.0; self.rows + 1];
        match basic {
            Basic::Column(c) => {
                made[..self.rows].copy_from_slice(&self.columns[c].excess);
                made[self.rows] = 1.0;
            }
            Basic::Slack(r) => made[r] = 1.0,
            Basic::Excess(r) => made[r] = -1.0,
        }
        made
    }

    fn cost(&self, basic: Basic) -> f64 {
        match basic {
            Basic::Column(c) => self.columns[c].goal,
            Basic::Slack(_) => 0.0,
            Basic::Excess(_) => self.penalty,
        }
    }

    /// Recompute the inverse of the basis (Gauss-Jordan with row pivoting).
    fn refactor(&mut self) {
        let m = self.rows + 1;
        let wide = 2 * m;
        let mut work = vec![0.0; m * wide];
        for (c, basic) in self.basis.iter().enumerate() {
            for (r, value) in self.vector(*basic).into_iter().enumerate() {
                work[r * wide + c] = value;
            }
        }
        for r in 0..m {
            work[r * wide + m + r] = 1.0;
        }
        for c in 0..m {
            let best = (c..m)
                .max_by(|&a, &b| {
                    work[a * wide + c]
                        .abs()
                        .total_cmp(&work[b * wide + c].abs())
                })
                .unwrap_or(c);
            for x in 0..wide {
                work.swap(c * wide + x, best * wide + x);
            }
            eliminate(&mut work, wide, c, c);
        }
        self.inverse = (0..m)
            .flat_map(|r| work[r * wide + m..(r + 1) * wide].iter().copied())
            .collect();
        self.level = (0..m)
            .map(|r| self.inverse[r * m + m - 1].max(0.0))
            .collect();
        self.pivots = 0;
        self.price();
    }

    fn price(&mut self) {
        let m = self.rows + 1;
        self.prices.clear();
        self.prices.resize(m, 0.0);
        for (b, basic) in self.basis.iter().enumerate() {
            let cost = self.cost(*basic);
            if cost != 0.0 {
                for (price, value) in self
                    .prices
                    .iter_mut()
                    .zip(&self.inverse[b * m..(b + 1) * m])
                {
                    *price += cost * value;
                }
            }
        }
    }

    /// Compute the change of the goal per unit of a variable.
    fn reduced(&self, basic: Basic) -> f64 {
        match basic {
            Basic::Column(c) => {
                let column = &self.columns[c];
                let rows: f64 = self
                    .prices
                    .iter()
                    .zip(&column.excess)
                    .map(|(p, v)| p * v)
                    .sum();
                column.goal - rows - self.prices[self.rows]
            }
            Basic::Slack(r) => -self.prices[r],
            Basic::Excess(r) => self.penalty + self.prices[r],
        }
    }

    /// Optimise over the known placements.
    pub fn solve(&mut self) -> Mixture {
        for round in 0..20 * (self.columns.len() + 2 * self.rows + 4) {
            let candidates = (0..self.columns.len())
                .map(Basic::Column)
                .chain((0..self.rows).map(Basic::Slack))
                .chain((0..self.rows).map(Basic::Excess));
            let mut entering: Option<(Basic, f64)> = None;
            for candidate in candidates {
                let value = self.reduced(candidate);
                let scale = 1.0 + self.cost(candidate).abs();
                if value < -EPS * scale && entering.is_none_or(|(_, best)| value < best) {
                    entering = Some((candidate, value));
                    if round > 200 {
                        break; // the first one that improves, against cycling
                    }
                }
            }
            let Some((basic, _)) = entering else { break };
            if !self.pivot(basic) {
                break;
            }
        }
        self.mixture()
    }

    fn pivot(&mut self, entering: Basic) -> bool {
        let (m, vector) = (self.rows + 1, self.vector(entering));
        let step: Vec<f64> = self
            .inverse
            .chunks_exact(m)
            .map(|row| row.iter().zip(&vector).map(|(a, b)| a * b).sum())
            .collect();
        let mut leaving: Option<(usize, f64)> = None;
        for (b, &slope) in step.iter().enumerate() {
            if slope > 1e-10 {
                let ratio = self.level[b] / slope;
                if leaving.is_none_or(|(_, best)| ratio < best - 1e-12) {
                    leaving = Some((b, ratio));
                }
            }
        }
        let Some((out, ratio)) = leaving else {
            return false;
        };
        self.basis[out] = entering;
        self.pivots += 1;
        if self.pivots >= REFACTOR || step[out] < 1e-6 {
            self.refactor();
            return true;
        }
        for x in 0..m {
            let lead = self.inverse[out * m + x] / step[out];
            for (r, slope) in step.iter().enumerate() {
                if r != out {
                    self.inverse[r * m + x] -= slope * lead;
                }
            }
            self.inverse[out * m + x] = lead;
        }
        for (level, slope) in self.level.iter_mut().zip(&step) {
            *level = (*level - slope * ratio).max(0.0);
        }
        self.level[out] = ratio;
        self.price();
        true
    }

    /// Return the placements in the mixture with their shares.
    pub fn mixed(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let levels = self.basis.iter().zip(&self.level);
        levels.filter_map(|(basic, level)| match basic {
            Basic::Column(c) => Some((*c, *level)),
            _ => None,
        })
    }

    fn mixture(&self) -> Mixture {
        let levels = self.basis.iter().zip(&self.level);
        let unmet = levels
            .filter(|(basic, _)| matches!(basic, Basic::Excess(_)))
            .map(|(_, level)| level)
            .sum();
        Mixture {
            weights: self.prices[..self.rows]
                .iter()
                .map(|p| (-p).max(0.0))
                .collect(),
            value: self.prices[self.rows],
            unmet,
        }
    }
}

/// Turn column `c` of the matrix into a unit vector, by row `pivot`; leave a column of zeros.
fn eliminate(work: &mut [f64], wide: usize, c: usize, pivot: usize) {
    let lead: Vec<f64> = {
        let value = work[pivot * wide + c];
        if value.abs() < 1e-12 {
            return;
        }
        let row = &mut work[pivot * wide..(pivot + 1) * wide];
        row.iter_mut().for_each(|v| *v /= value);
        row.to_vec()
    };
    for (r, row) in work.chunks_exact_mut(wide).enumerate() {
        let factor = row[c];
        if r != pivot && factor != 0.0 {
            row.iter_mut()
                .zip(&lead)
                .for_each(|(v, l)| *v -= factor * l);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Column, Master};

    #[test]
    fn mixes_two_placements() {
        // Goal 0 at excess 4, goal 10 at excess -1: one fifth of the first.
        let mut master = Master::new(
            Column {
                goal: 0.0,
                excess: vec![4.0],
            },
            1000.0,
        );
        assert!(master.solve().unmet > 3.9);
        master.add(Column {
            goal: 10.0,
            excess: vec![-1.0],
        });
        let mixture = master.solve();
        assert!(mixture.unmet < 1e-9);
        assert!((mixture.value - 8.0).abs() < 1e-6);
        assert!((mixture.weights[0] - 2.0).abs() < 1e-6);
    }
}
