//! The small linear program that steers the weights (Dantzig-Wolfe): mix the placements seen so far so that the mixture
//! satisfies every row at the least goal; its dual values are the next weights.

const EPS: f64 = 1e-9;

/// A placement seen: its goal, and per row its use less the limit.
#[derive(Clone, Debug)]
pub struct Column {
    pub goal: f64,
    pub excess: Vec<f64>,
}

/// What the mixture says.
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

/// The program over the placements seen, solved by the primal simplex method with an explicit inverse.
pub struct Master {
    rows: usize,
    penalty: f64,
    columns: Vec<Column>,
    basis: Vec<Basic>,
    inverse: Vec<Vec<f64>>,
    level: Vec<f64>,
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
        };
        master.refactor();
        master
    }

    /// Add a placement.
    pub fn add(&mut self, column: Column) {
        self.columns.push(column);
    }

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

    /// Invert the basis afresh (Gauss-Jordan with row pivoting).
    fn refactor(&mut self) {
        let m = self.rows + 1;
        let mut work = vec![vec![0.0; 2 * m]; m];
        for (c, basic) in self.basis.iter().enumerate() {
            for (r, value) in self.vector(*basic).into_iter().enumerate() {
                work[r][c] = value;
            }
        }
        for (r, row) in work.iter_mut().enumerate() {
            row[m + r] = 1.0;
        }
        for c in 0..m {
            let best = (c..m)
                .max_by(|&a, &b| work[a][c].abs().total_cmp(&work[b][c].abs()))
                .unwrap_or(c);
            work.swap(c, best);
            let pivot = work[c][c];
            if pivot.abs() < 1e-12 {
                continue;
            }
            work[c].iter_mut().for_each(|v| *v /= pivot);
            let lead = work[c].clone();
            for (r, row) in work.iter_mut().enumerate() {
                let factor = row[c];
                if r != c && factor != 0.0 {
                    row.iter_mut()
                        .zip(&lead)
                        .for_each(|(v, l)| *v -= factor * l);
                }
            }
        }
        self.inverse = work.into_iter().map(|row| row[m..].to_vec()).collect();
        self.level = self.inverse.iter().map(|row| row[m - 1].max(0.0)).collect();
    }

    fn prices(&self) -> Vec<f64> {
        let mut made = vec![0.0; self.rows + 1];
        for (b, basic) in self.basis.iter().enumerate() {
            let cost = self.cost(*basic);
            if cost != 0.0 {
                made.iter_mut()
                    .zip(&self.inverse[b])
                    .for_each(|(p, v)| *p += cost * v);
            }
        }
        made
    }

    fn reduced(&self, basic: Basic, prices: &[f64]) -> f64 {
        let vector = self.vector(basic);
        self.cost(basic) - prices.iter().zip(&vector).map(|(p, v)| p * v).sum::<f64>()
    }

    /// Optimise over the placements seen so far.
    pub fn solve(&mut self) -> Mixture {
        for round in 0..20 * (self.columns.len() + 2 * self.rows + 4) {
            let prices = self.prices();
            let candidates = (0..self.columns.len())
                .map(Basic::Column)
                .chain((0..self.rows).map(Basic::Slack))
                .chain((0..self.rows).map(Basic::Excess));
            let mut entering: Option<(Basic, f64)> = None;
            for candidate in candidates {
                let value = self.reduced(candidate, &prices);
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
        let vector = self.vector(entering);
        let step: Vec<f64> = self
            .inverse
            .iter()
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
        let Some((out, _)) = leaving else {
            return false;
        };
        self.basis[out] = entering;
        self.refactor();
        true
    }

    fn mixture(&self) -> Mixture {
        let prices = self.prices();
        let unmet = self
            .basis
            .iter()
            .zip(&self.level)
            .filter(|(basic, _)| matches!(basic, Basic::Excess(_)))
            .map(|(_, level)| level)
            .sum();
        Mixture {
            weights: prices[..self.rows].iter().map(|p| (-p).max(0.0)).collect(),
            value: prices[self.rows],
            unmet,
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
