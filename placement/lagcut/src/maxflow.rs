//! Maximum flow by blocking flows (Dinic), on the residual graph in compressed form.

use std::collections::VecDeque;

/// A network; vertices are `0..count`, edges come in pairs `e`, `e ^ 1`.
pub struct Network {
    start: Vec<usize>,
    order: Vec<usize>,
    head: Vec<usize>,
    residual: Vec<i64>,
    level: Vec<u32>,
    next: Vec<usize>,
}

const FAR: u32 = u32::MAX;

impl Network {
    /// Build from edges `(from, to, capacity, capacity of the reverse)`.
    pub fn new(count: usize, edges: &[(usize, usize, i64, i64)]) -> Self {
        let mut start = vec![0; count + 1];
        for &(from, to, ..) in edges {
            start[from + 1] += 1;
            start[to + 1] += 1;
        }
        for v in 0..count {
            start[v + 1] += start[v];
        }
        let mut fill = start.clone();
        let mut order = vec![0; 2 * edges.len()];
        let mut head = Vec::with_capacity(2 * edges.len());
        let mut residual = Vec::with_capacity(2 * edges.len());
        for (e, &(from, to, forward, backward)) in edges.iter().enumerate() {
            head.extend([to, from]);
            residual.extend([forward, backward]);
            order[fill[from]] = 2 * e;
            order[fill[to]] = 2 * e + 1;
            fill[from] += 1;
            fill[to] += 1;
        }
        Network {
            start,
            order,
            head,
            residual,
            level: vec![FAR; count],
            next: vec![0; count],
        }
    }

    /// What is left of edge `e` (as numbered at building, forward).
    pub fn left(&self, e: usize) -> i64 {
        self.residual[2 * e]
    }

    /// Push all flow from `source` to `sink`; its value.
    pub fn run(&mut self, source: usize, sink: usize) -> i64 {
        let mut total = 0;
        while self.levels(source, sink) {
            self.next.copy_from_slice(&self.start[..self.level.len()]);
            loop {
                let pushed = self.path(source, sink);
                if pushed == 0 {
                    break;
                }
                total += pushed;
            }
        }
        total
    }

    /// Vertices on the source's side of the minimum cut, after `run`.
    pub fn reached(&self, v: usize) -> bool {
        self.level[v] != FAR
    }

    fn levels(&mut self, source: usize, sink: usize) -> bool {
        self.level.fill(FAR);
        self.level[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(v) = queue.pop_front() {
            for &e in &self.order[self.start[v]..self.start[v + 1]] {
                let to = self.head[e];
                if self.residual[e] > 0 && self.level[to] == FAR {
                    self.level[to] = self.level[v] + 1;
                    queue.push_back(to);
                }
            }
        }
        self.level[sink] != FAR
    }

    /// One augmenting path along the levels, without recursion; what it carried, 0 if there is none.
    fn path(&mut self, source: usize, sink: usize) -> i64 {
        let mut trail: Vec<usize> = Vec::new();
        let mut v = source;
        loop {
            if v == sink {
                let amount = trail.iter().map(|&e| self.residual[e]).min().unwrap_or(0);
                for &e in &trail {
                    self.residual[e] -= amount;
                    self.residual[e ^ 1] += amount;
                }
                return amount;
            }
            let mut advanced = false;
            while self.next[v] < self.start[v + 1] {
                let e = self.order[self.next[v]];
                let to = self.head[e];
                if self.residual[e] > 0 && self.level[to] == self.level[v] + 1 {
                    trail.push(e);
                    v = to;
                    advanced = true;
                    break;
                }
                self.next[v] += 1;
            }
            if !advanced {
                match trail.pop() {
                    None => return 0,
                    Some(e) => {
                        v = self.head[e ^ 1];
                        self.next[v] += 1;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn a_known_flow() {
        let edges = [
            (0, 1, 10, 0),
            (0, 2, 10, 0),
            (1, 2, 2, 2),
            (1, 3, 4, 0),
            (2, 3, 9, 0),
        ];
        let mut network = Network::new(4, &edges);
        assert_eq!(network.run(0, 3), 13);
        assert!(
            network.reached(0) && network.reached(1) && network.reached(2) && !network.reached(3)
        );
    }
}
