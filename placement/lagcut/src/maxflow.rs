//! Maximum flow by blocking flows (Dinic), from vertices with a surplus to vertices with a deficit.

/// A network with a fixed structure, whose capacities change from run to run.
#[derive(Default)]
pub struct Network {
    start: Vec<u32>,
    /// Edge `e` and its reverse `e ^ 1`, per vertex that they leave.
    leaving: Vec<u32>,
    head: Vec<u32>,
    residual: Vec<i64>,
    /// The surplus (above 0) or deficit (below 0) of each vertex.
    surplus: Vec<i64>,
    level: Vec<u32>,
    next: Vec<u32>,
    queue: Vec<u32>,
    trail: Vec<u32>,
}

const FAR: u32 = u32::MAX;

impl Network {
    /// Create a network of `count` vertices with edges both ways between these pairs, all capacities 0.
    pub fn new(count: usize, pairs: &[(u32, u32)]) -> Self {
        let mut start = vec![0; count + 1];
        for &(from, to) in pairs {
            start[from as usize + 1] += 1;
            start[to as usize + 1] += 1;
        }
        for v in 0..count {
            start[v + 1] += start[v];
        }
        let mut fill = start.clone();
        let mut leaving = vec![0; 2 * pairs.len()];
        let mut head = Vec::with_capacity(2 * pairs.len());
        for (e, &(from, to)) in pairs.iter().enumerate() {
            head.extend([to, from]);
            for (v, edge) in [(from, 2 * e), (to, 2 * e + 1)] {
                leaving[fill[v as usize] as usize] = edge as u32;
                fill[v as usize] += 1;
            }
        }
        Network {
            start,
            leaving,
            head,
            residual: vec![0; 2 * pairs.len()],
            surplus: vec![0; count],
            level: vec![FAR; count],
            next: vec![0; count],
            queue: Vec::with_capacity(count),
            trail: Vec::with_capacity(count),
        }
    }

    /// Set the capacities of pair `e`, from its first vertex to its second and back.
    pub fn capacity(&mut self, e: usize, forward: i64, backward: i64) {
        self.residual[2 * e] = forward;
        self.residual[2 * e + 1] = backward;
    }

    /// Return the residual capacity of pair `e` from its first vertex to its second.
    pub fn left(&self, e: usize) -> i64 {
        self.residual[2 * e]
    }

    /// Set the surplus or deficit of a vertex.
    pub fn supply(&mut self, v: usize, amount: i64) {
        self.surplus[v] = amount;
    }

    /// Push the maximum flow, and return its value.
    pub fn run(&mut self) -> i64 {
        let mut total = 0;
        while self.levels() {
            self.next.copy_from_slice(&self.start[..self.level.len()]);
            for v in 0..self.surplus.len() {
                while self.surplus[v] > 0 {
                    let pushed = self.path(v);
                    if pushed == 0 {
                        break;
                    }
                    total += pushed;
                }
            }
        }
        total
    }

    /// After `run`, tell whether the remaining surplus can reach a vertex: one side of the minimum cut.
    pub fn reached(&self, v: usize) -> bool {
        self.level[v] != FAR
    }

    fn levels(&mut self) -> bool {
        self.level.fill(FAR);
        self.queue.clear();
        for (v, surplus) in self.surplus.iter().enumerate() {
            if *surplus > 0 {
                self.level[v] = 0;
                self.queue.push(v as u32);
            }
        }
        let (mut found, mut at) = (false, 0);
        while at < self.queue.len() {
            let v = self.queue[at] as usize;
            at += 1;
            found |= self.surplus[v] < 0;
            for &e in &self.leaving[self.start[v] as usize..self.start[v + 1] as usize] {
                let to = self.head[e as usize] as usize;
                if self.residual[e as usize] > 0 && self.level[to] == FAR {
                    self.level[to] = self.level[v] + 1;
                    self.queue.push(to as u32);
                }
            }
        }
        found
    }

    /// Augment one path along the levels, without recursion; return its flow, 0 if no path exists.
    fn path(&mut self, source: usize) -> i64 {
        self.trail.clear();
        let mut v = source;
        loop {
            if self.surplus[v] < 0 {
                return self.augment(source, v);
            }
            let mut advanced = false;
            while self.next[v] < self.start[v + 1] {
                let e = self.leaving[self.next[v] as usize] as usize;
                let to = self.head[e] as usize;
                if self.residual[e] > 0 && self.level[to] == self.level[v] + 1 {
                    self.trail.push(e as u32);
                    v = to;
                    advanced = true;
                    break;
                }
                self.next[v] += 1;
            }
            if !advanced {
                match self.trail.pop() {
                    None => return 0,
                    Some(e) => {
                        v = self.head[e as usize ^ 1] as usize;
                        self.next[v] += 1;
                    }
                }
            }
        }
    }

    fn augment(&mut self, source: usize, sink: usize) -> i64 {
        let least = self.trail.iter().map(|&e| self.residual[e as usize]).min();
        let ends = self.surplus[source].min(-self.surplus[sink]);
        let amount = least.unwrap_or(i64::MAX).min(ends);
        for &e in &self.trail {
            self.residual[e as usize] -= amount;
            self.residual[e as usize ^ 1] += amount;
        }
        self.surplus[source] -= amount;
        self.surplus[sink] += amount;
        amount
    }
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn a_known_flow_again_and_again() {
        let mut network = Network::new(4, &[(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]);
        for _ in 0..2 {
            for (e, (forward, backward)) in [(10, 0), (10, 0), (2, 2), (4, 0), (9, 0)]
                .into_iter()
                .enumerate()
            {
                network.capacity(e, forward, backward);
            }
            for (v, amount) in [20, 0, 0, -30].into_iter().enumerate() {
                network.supply(v, amount);
            }
            assert_eq!(network.run(), 13);
            assert!((0..3).all(|v| network.reached(v)) && !network.reached(3));
            assert_eq!((network.left(3), network.left(4)), (0, 0));
        }
    }
}
