//! Flows whose packets end the program.

use std::collections::{HashMap, HashSet, VecDeque};

/// So often may the program end at one packet.
const ENDS: u32 = 3;
/// The most flows and packets remembered; the oldest are forgotten first.
const MOST: usize = 4096;

/// The record of flows at whose packets the program has ended.
#[derive(Default)]
pub(crate) struct Quarantine {
    /// How often the program has ended at a packet: flow and sequence.
    ends: HashMap<(u64, u64), u32>,
    order: VecDeque<(u64, u64)>,
    flows: HashSet<u64>,
    isolated: VecDeque<u64>,
}

impl Quarantine {
    /// The program has ended at this packet. Returns true if its flow is in quarantine from now on.
    pub(crate) fn accuse(&mut self, packet: (u64, u64)) -> bool {
        if !self.ends.contains_key(&packet) {
            self.order.push_back(packet);
            if self.order.len() > MOST {
                if let Some(oldest) = self.order.pop_front() {
                    self.ends.remove(&oldest);
                }
            }
        }
        let count = self.ends.entry(packet).or_default();
        *count += 1;
        if *count < ENDS || !self.flows.insert(packet.0) {
            return false;
        }
        self.isolated.push_back(packet.0);
        if self.isolated.len() > MOST {
            if let Some(oldest) = self.isolated.pop_front() {
                self.flows.remove(&oldest);
            }
        }
        true
    }

    #[inline]
    pub(crate) fn has(&self, flow: u64) -> bool {
        !self.flows.is_empty() && self.flows.contains(&flow)
    }

    pub(crate) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// The flow is over, and its number may become another's.
    pub(crate) fn release(&mut self, flow: u64) {
        if self.flows.remove(&flow) {
            self.isolated.retain(|other| *other != flow);
        }
        if !self.ends.is_empty() {
            self.ends.retain(|packet, _| packet.0 != flow);
            self.order.retain(|packet| packet.0 != flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_isolated_after_three_ends_at_one_packet_until_it_is_over() {
        let mut quarantine = Quarantine::default();
        assert!(!quarantine.accuse((7, 1)));
        assert!(!quarantine.accuse((7, 2)));
        assert!(!quarantine.accuse((7, 1)));
        assert!(!quarantine.has(7));
        assert!(quarantine.accuse((7, 1)));
        assert!(quarantine.has(7) && !quarantine.has(8));
        quarantine.release(7);
        assert!(!quarantine.has(7));
        assert!(!quarantine.accuse((7, 1)));
    }

    #[test]
    fn it_is_bounded() {
        let mut quarantine = Quarantine::default();
        for flow in 0..MOST as u64 + 10 {
            let accused = (0..ENDS).filter(|_| quarantine.accuse((flow, 0)));
            assert_eq!(accused.count(), 1);
        }
        assert_eq!((quarantine.flows(), quarantine.ends.len()), (MOST, MOST));
        assert!(!quarantine.has(0) && quarantine.has(MOST as u64));
    }
}
