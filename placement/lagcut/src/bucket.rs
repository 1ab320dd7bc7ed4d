//! Labels of one state, and dominance among them.

use std::collections::BTreeMap;

/// Labels that a new one is compared with where more than two rows can bind.
const SCAN: usize = 48;

/// Labels of one state; `uses` holds `width` numbers per label.
#[derive(Default)]
pub struct Bucket {
    pub values: Vec<i64>,
    pub uses: Vec<i64>,
    pub parents: Vec<u32>,
    pub modes: Vec<u8>,
}

impl Bucket {
    fn pick(&mut self, kept: &[usize], width: usize) {
        self.values = kept.iter().map(|&l| self.values[l]).collect();
        self.parents = kept.iter().map(|&l| self.parents[l]).collect();
        self.modes = kept.iter().map(|&l| self.modes[l]).collect();
        self.uses = kept
            .iter()
            .flat_map(|&l| self.uses[l * width..(l + 1) * width].iter().copied())
            .collect();
    }

    /// Drop labels that use no less of everything than another one.
    pub fn thin(&mut self, width: usize) {
        if self.parents.len() < 2 {
            return;
        }
        let mut order: Vec<usize> = (0..self.parents.len()).collect();
        let uses = &self.uses;
        // Labels come as a few sorted runs, which the stable sort merges.
        order.sort_by(|&a, &b| {
            uses[a * width..(a + 1) * width].cmp(&uses[b * width..(b + 1) * width])
        });
        let kept = match width {
            1 => order[..1].to_vec(),
            2 => self.stair(&order),
            3 => self.stairs(&order),
            _ => self.scan(&order, width),
        };
        self.pick(&kept, width);
    }

    fn stair(&self, order: &[usize]) -> Vec<usize> {
        let mut low = i64::MAX;
        order
            .iter()
            .copied()
            .filter(|&l| {
                let better = self.uses[l * 2 + 1] < low;
                low = low.min(self.uses[l * 2 + 1]);
                better
            })
            .collect()
    }

    /// Sorted by the first column, so a label is dominated if the staircase of the other two has a step below it.
    fn stairs(&self, order: &[usize]) -> Vec<usize> {
        let mut steps: BTreeMap<i64, i64> = BTreeMap::new();
        let mut kept = Vec::with_capacity(order.len());
        for &label in order {
            let (x, y) = (self.uses[label * 3 + 1], self.uses[label * 3 + 2]);
            if steps
                .range(..=x)
                .next_back()
                .is_some_and(|(_, low)| *low <= y)
            {
                continue;
            }
            while let Some((&far, _)) = steps.range(x..).next().filter(|(_, high)| **high >= y) {
                steps.remove(&far);
            }
            steps.insert(x, y);
            kept.push(label);
        }
        kept
    }

    fn scan(&self, order: &[usize], width: usize) -> Vec<usize> {
        let uses = |l: usize| &self.uses[l * width..(l + 1) * width];
        let mut kept: Vec<usize> = Vec::with_capacity(order.len());
        for &label in order {
            let mine = uses(label);
            let recent = kept.iter().rev().take(SCAN);
            if !recent
                .into_iter()
                .any(|&other| uses(other).iter().zip(mine).all(|(a, b)| a <= b))
            {
                kept.push(label);
            }
        }
        kept
    }
}

/// Keep the `cap` labels of least value, and tell whether any were lost.
pub fn cut_to(states: &mut BTreeMap<Vec<u32>, Bucket>, cap: usize, width: usize) -> bool {
    let count: usize = states.values().map(|b| b.parents.len()).sum();
    if count <= cap {
        states.retain(|_, bucket| !bucket.parents.is_empty());
        return false;
    }
    let mut values: Vec<i64> = states
        .values()
        .flat_map(|b| b.values.iter().copied())
        .collect();
    let (_, &mut limit, _) = values.select_nth_unstable(cap - 1);
    let below = values.iter().filter(|v| **v < limit).count();
    let mut ties = cap - below;
    for bucket in states.values_mut() {
        let kept: Vec<usize> = (0..bucket.parents.len())
            .filter(|&l| {
                let value = bucket.values[l];
                let tie = value == limit && ties > 0;
                ties -= usize::from(tie);
                value < limit || tie
            })
            .collect();
        bucket.pick(&kept, width);
    }
    states.retain(|_, bucket| !bucket.parents.is_empty());
    true
}
