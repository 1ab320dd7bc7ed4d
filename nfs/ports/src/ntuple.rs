//! The rules of a network card that steers flows into queues: `ethtool -N`, Intel's Flow Director among others (linux/ethtool.h).

use std::{cell::Cell, io};

use crate::{interface::Asker, matching::Match};

const ETHTOOL_GRXCLSRLCNT: u32 = 0x2e;
const ETHTOOL_GRXCLSRULE: u32 = 0x2f;
const ETHTOOL_GRXCLSRLALL: u32 = 0x30;
const ETHTOOL_SRXCLSRLDEL: u32 = 0x31;
const ETHTOOL_SRXCLSRLINS: u32 = 0x32;
const ETHTOOL_GRXFHINDIR: u32 = 0x38;
const TCP_V4_FLOW: u32 = 0x01;
const UDP_V4_FLOW: u32 = 0x02;
const TCP_V6_FLOW: u32 = 0x05;
const UDP_V6_FLOW: u32 = 0x06;
/// The driver chooses the places of rules itself.
const RX_CLS_LOC_SPECIAL: u32 = 0x8000_0000;
const RX_CLS_LOC_ANY: u32 = 0xffff_ffff;

/// Words of `struct ethtool_rxnfc`, and of its parts: `data`, then `fs` with the flow, its mask, the queue and the place, then the number of rules and
/// their places.
const WORDS: usize = 48;
const DATA: usize = 2;
const KIND: usize = 4;
const FLOW: usize = 5;
const MASK: usize = 23;
const QUEUE: usize = 42;
const PLACE: usize = 44;
const COUNT: usize = 46;
const PLACES: usize = 47;

/// The table of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// Rules in it, and the most.
    pub(crate) rules: u32,
    pub(crate) most: u32,
    /// Whether the driver chooses the places.
    pub(crate) has_any: bool,
}

/// The rules of one interface. Calls take up to milliseconds.
pub(crate) struct Rules(Asker);

impl Rules {
    pub(crate) fn new(interface: &str) -> io::Result<Self> {
        Asker::new(interface).map(Self)
    }

    fn call(
        &self,
        command: u32,
        words: usize,
        fill: impl FnOnce(&mut [u32]),
    ) -> io::Result<Vec<u32>> {
        let mut argument = vec![0; words];
        argument[0] = command;
        fill(&mut argument);
        let cells: Vec<Cell<u32>> = argument.into_iter().map(Cell::new).collect();
        self.0.command(&cells)?;
        Ok(cells.into_iter().map(Cell::into_inner).collect())
    }

    pub(crate) fn size(&self) -> io::Result<Size> {
        let words = self.call(ETHTOOL_GRXCLSRLCNT, WORDS, |_| {})?;
        let data = low(&words, DATA);
        Ok(Size {
            rules: words[COUNT],
            most: data & !RX_CLS_LOC_SPECIAL,
            has_any: data & RX_CLS_LOC_SPECIAL != 0,
        })
    }

    /// Steers a flow into a queue; returns the rule's place. `place`: where the driver does not choose it.
    pub(crate) fn insert(&self, flow: &Match, queue: u32, place: Option<u32>) -> io::Result<u32> {
        let place = place.unwrap_or(RX_CLS_LOC_ANY);
        let words = self.call(ETHTOOL_SRXCLSRLINS, WORDS, |words| {
            describe(flow, words);
            put_low(words, QUEUE, queue);
            words[PLACE] = place;
        })?;
        Ok(words[PLACE])
    }

    pub(crate) fn delete(&self, place: u32) -> io::Result<()> {
        self.call(ETHTOOL_SRXCLSRLDEL, WORDS, |words| words[PLACE] = place)
            .map(drop)
    }

    /// Returns the places of all rules that match flows as [`insert`](Self::insert) writes them. Others are not this program's.
    pub(crate) fn flows(&self) -> io::Result<Vec<u32>> {
        let rules = self.size()?.rules;
        let words = WORDS + rules as usize;
        let all = self.call(ETHTOOL_GRXCLSRLALL, words, |words| words[COUNT] = rules)?;
        let count = all[COUNT].min(rules) as usize;
        let mut places = Vec::new();
        for place in &all[PLACES..PLACES + count] {
            let rule = self.call(ETHTOOL_GRXCLSRULE, WORDS, |words| words[PLACE] = *place)?;
            if is_flow(&rule) {
                places.push(*place);
            }
        }
        Ok(places)
    }

    /// Returns the queues that frames without a rule come to, or an error if the driver does not say.
    pub(crate) fn spread(&self) -> io::Result<Vec<u32>> {
        // struct ethtool_rxfh_indir: the command, the size, the queues
        let size = self.call(ETHTOOL_GRXFHINDIR, 2, |_| {})?[1];
        let words = 2 + size as usize;
        let all = self.call(ETHTOOL_GRXFHINDIR, words, |words| words[1] = size)?;
        Ok(all[2..].to_vec())
    }
}

/// Returns the lower half of the 64 bits at this word.
fn low(words: &[u32], at: usize) -> u32 {
    (u64::from_ne_bytes(pair(words[at], words[at + 1]))) as u32
}

fn put_low(words: &mut [u32], at: usize, value: u32) {
    let bytes = u64::from(value).to_ne_bytes();
    let half = |from: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[from + byte]));
    (words[at], words[at + 1]) = (half(0), half(4));
}

fn pair(first: u32, second: u32) -> [u8; 8] {
    let (first, second) = (first.to_ne_bytes(), second.to_ne_bytes());
    std::array::from_fn(|at| if at < 4 { first[at] } else { second[at - 4] })
}

/// Writes the kind, the flow and its mask: all bits of addresses and ports.
fn describe(flow: &Match, words: &mut [u32]) {
    let is_ipv4 = flow.source[..10] == [0; 10] && flow.source[10..12] == [0xff; 2];
    let is_udp = i32::from(flow.protocol) == libc::IPPROTO_UDP;
    words[KIND] = match (is_ipv4, is_udp) {
        (true, false) => TCP_V4_FLOW,
        (true, true) => UDP_V4_FLOW,
        (false, false) => TCP_V6_FLOW,
        (false, true) => UDP_V6_FLOW,
    };
    let first = if is_ipv4 { 12 } else { 0 };
    let addresses = [&flow.source[first..], &flow.destination[first..]].concat();
    let ports = [
        flow.source_port.to_be_bytes(),
        flow.destination_port.to_be_bytes(),
    ]
    .concat();
    for (at, word) in addresses.chunks_exact(4).chain([&ports[..]]).enumerate() {
        words[FLOW + at] = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        words[MASK + at] = u32::MAX;
    }
}

/// Tells whether a rule has the mask that `describe` writes, and steers into a queue.
fn is_flow(rule: &[u32]) -> bool {
    let masked = match rule[KIND] {
        TCP_V4_FLOW | UDP_V4_FLOW => 3,
        TCP_V6_FLOW | UDP_V6_FLOW => 9,
        _ => return false,
    };
    // RX_CLS_FLOW_DISC has all bits.
    rule[MASK..MASK + masked]
        .iter()
        .all(|word| *word == u32::MAX)
        && rule[QUEUE + 1] == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(is_ipv6: bool, protocol: u8) -> Match {
        let address = |last| {
            let mut bytes = [0; 16];
            match is_ipv6 {
                true => bytes[0] = 0xfd,
                false => bytes[10..13].copy_from_slice(&[0xff, 0xff, 10]),
            }
            bytes[15] = last;
            bytes
        };
        Match {
            source: address(1),
            destination: address(2),
            source_port: 0x1234,
            destination_port: 0x5678,
            protocol,
        }
    }

    /// Returns bytes of the rule at an offset of `struct ethtool_rxnfc`.
    fn bytes(words: &[u32], at: usize, count: usize) -> Vec<u8> {
        let all: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        all[at..at + count].to_vec()
    }

    #[test]
    fn a_flow_is_described_as_the_kernel_reads_it() {
        let mut words = vec![0; WORDS];
        describe(&flow(false, 6), &mut words);
        assert_eq!(words[KIND], TCP_V4_FLOW);
        // offsetof(fs.h_u) is 20, offsetof(fs.m_u) 92.
        let expected = [10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34, 0x56, 0x78, 0];
        assert_eq!(bytes(&words, 20, 13), expected);
        assert_eq!(bytes(&words, 92, 13), [vec![0xff; 12], vec![0]].concat());
        assert!(is_flow(&words));
        words[MASK + 1] = 0x00ff_ffff;
        assert!(!is_flow(&words), "a prefix");
        let mut words = vec![0; WORDS];
        describe(&flow(true, 17), &mut words);
        assert_eq!(words[KIND], UDP_V6_FLOW);
        assert_eq!(bytes(&words, 20 + 15, 1), [1]);
        assert_eq!(bytes(&words, 20 + 32, 5), [0x12, 0x34, 0x56, 0x78, 0]);
        assert!(is_flow(&words));
        put_low(&mut words, QUEUE, 3);
        assert_eq!((low(&words, QUEUE), bytes(&words, 168, 1)), (3, vec![3]));
        words[QUEUE + 1] = u32::MAX;
        assert!(!is_flow(&words), "it drops");
    }

    #[test]
    fn an_interface_without_rules_refuses_them() {
        let rules = Rules::new("lo").unwrap();
        let own = flow(false, 6);
        for error in [
            rules.size().unwrap_err(),
            rules.insert(&own, 1, None).unwrap_err(),
            rules.delete(0).unwrap_err(),
            rules.flows().unwrap_err(),
        ] {
            let code = error.raw_os_error();
            assert!(
                matches!(code, Some(libc::EOPNOTSUPP | libc::EPERM)),
                "{error}"
            );
        }
        assert!(Rules::new("nosuch0").unwrap().size().is_err());
    }
}
