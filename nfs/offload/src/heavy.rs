//! Finds the heavy flows among samples of packets: Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements
//! in data streams", ICDT 2005).
//!
//! With m counters and n samples since the start, each flow with more than n/m samples has a counter, and a count is too high by at most n/m. Counts
//! are halved in each [`decay`](Heavy::decay), so they follow the recent past.

use std::collections::HashMap;

use crate::FlowKey;

#[derive(Clone, Copy, Debug)]
struct Counter {
    flow: FlowKey,
    count: u64,
    /// The count that the counter had when the flow took it from another one.
    inherited: u64,
    /// Samples since the last call of [`Heavy::begin_window`].
    window: u64,
}

/// The heaviest flows of the recent past.
#[derive(Debug)]
pub struct Heavy {
    most: usize,
    counters: Vec<Counter>,
    places: HashMap<FlowKey, usize>,
}

impl Heavy {
    /// `counters`: at least one.
    #[must_use]
    pub fn new(counters: usize) -> Self {
        let most = counters.max(1);
        Self {
            most,
            counters: Vec::with_capacity(most),
            places: HashMap::with_capacity(most),
        }
    }

    /// Counts a sampled packet. The heap property of `counters` (the least first) costs O(log m).
    pub fn sample(&mut self, flow: FlowKey) {
        if let Some(&place) = self.places.get(&flow) {
            self.counters[place].count += 1;
            self.counters[place].window += 1;
            self.sink(place);
        } else if self.counters.len() < self.most {
            self.counters.push(Counter {
                flow,
                count: 1,
                inherited: 0,
                window: 1,
            });
            let place = self.counters.len() - 1;
            self.places.insert(flow, place);
            self.rise(place);
        } else if let Some(least) = self.counters.first_mut() {
            self.places.remove(&least.flow);
            *least = Counter {
                flow,
                count: least.count + 1,
                inherited: least.count,
                window: 1,
            };
            self.places.insert(flow, 0);
            self.sink(0);
        }
    }

    /// Returns the flows with at least `samples` certain samples, the heaviest first, each with its number.
    #[must_use]
    pub fn at_least(&self, samples: u64) -> Vec<(FlowKey, u64)> {
        self.found(|_, count| count >= samples)
    }

    /// Returns the flows with at least `samples` certain samples, or `now` since the last call of [`begin_window`](Self::begin_window); none of them has
    /// been silent since then.
    #[must_use]
    pub fn active(&self, samples: u64, now: u64) -> Vec<(FlowKey, u64)> {
        self.found(|window, count| window > 0 && (count >= samples || window >= now))
    }

    fn found(&self, is_heavy: impl Fn(u64, u64) -> bool) -> Vec<(FlowKey, u64)> {
        let certain = |counter: &Counter| {
            let count = counter.count - counter.inherited;
            is_heavy(counter.window, count).then_some((counter.flow, count))
        };
        let mut found: Vec<_> = self.counters.iter().filter_map(certain).collect();
        found.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(&other.0)));
        found
    }

    /// Begins to count the samples of a window.
    pub fn begin_window(&mut self) {
        for counter in &mut self.counters {
            counter.window = 0;
        }
    }

    /// Halves all counts, and forgets flows without one.
    pub fn decay(&mut self) {
        for counter in &mut self.counters {
            counter.count /= 2;
            counter.inherited = (counter.inherited / 2).min(counter.count);
        }
        self.counters.retain(|counter| counter.count > 0);
        self.counters.sort_by_key(|counter| counter.count);
        self.places = self
            .counters
            .iter()
            .enumerate()
            .map(|(place, counter)| (counter.flow, place))
            .collect();
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.counters[parent].count <= self.counters[place].count {
                return;
            }
            self.swap(parent, place);
            place = parent;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2];
            let within = children
                .into_iter()
                .filter(|child| *child < self.counters.len());
            let Some(least) = within.min_by_key(|child| self.counters[*child].count) else {
                return;
            };
            if self.counters[place].count <= self.counters[least].count {
                return;
            }
            self.swap(place, least);
            place = least;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.counters.swap(one, other);
        for place in [one, other] {
            self.places.insert(self.counters[place].flow, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable;
    use proptest::prelude::*;

    use super::*;

    fn flow(number: u16) -> FlowKey {
        FlowKey {
            source_port: number,
            ..FlowKey::zeroed()
        }
    }

    proptest! {
        #[test]
        fn every_flow_above_its_share_is_found_and_no_certain_count_is_too_high(
            samples in prop::collection::vec(prop_oneof![3 => 0u16..6, 2 => 0u16..200], 1..2000),
            counters in 1usize..40,
        ) {
            let mut heavy = Heavy::new(counters);
            let mut exact = HashMap::<FlowKey, u64>::new();
            for number in &samples {
                heavy.sample(flow(*number));
                *exact.entry(flow(*number)).or_default() += 1;
            }
            let found: HashMap<_, _> = heavy.at_least(0).into_iter().collect();
            for (flow, count) in &exact {
                prop_assert!(found.get(flow).is_none_or(|certain| certain <= count));
                if *count > samples.len() as u64 / counters as u64 {
                    prop_assert!(found.contains_key(flow));
                }
            }
        }
    }

    #[test]
    fn a_flow_that_stops_is_forgotten() {
        let mut heavy = Heavy::new(8);
        for _ in 0..100 {
            heavy.sample(flow(1));
        }
        for _ in 0..7 {
            heavy.decay();
            heavy.sample(flow(2));
        }
        assert_eq!(heavy.at_least(1), [(flow(2), 1)]);
    }

    #[test]
    fn the_heaviest_come_first() {
        let mut heavy = Heavy::new(8);
        for (number, count) in [(1, 3), (2, 9), (3, 5)] {
            (0..count).for_each(|_| heavy.sample(flow(number)));
        }
        assert_eq!(heavy.at_least(5), [(flow(2), 9), (flow(3), 5)]);
    }
}
