//! Marks by an XDP program, in place of a network card that matches flows (HNLB, section II-B): exact matches of up to thousands of flows.
//!
//! The program puts eight bytes in front of each frame (`bpf_xdp_adjust_meta`), which the kernel copies with it: the mark of its flow plus one, or 0. A
//! frame for which that is impossible takes the way of frames without a socket. Fragments and TCP segments with SYN, FIN or RST get no mark, nor do IP
//! packets with options and frames of less than 54 bytes.

use std::{
    io,
    os::fd::AsRawFd,
    sync::{
        atomic::{AtomicU32, Ordering},
        Arc,
    },
};

use super::{
    assembly::{Assembly, Label, Width},
    bpf::{Map, BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_ARRAY_OF_MAPS, BPF_MAP_TYPE_HASH},
    ring::Watcher,
};
use crate::matching::{Match, Matcher, Moment};

#[cfg(test)]
mod tests;

/// Bytes in front of a frame.
pub(super) const BYTES: usize = 8;

const BPF_FUNC_MAP_LOOKUP_ELEM: i32 = 1;
const BPF_FUNC_XDP_ADJUST_META: i32 = 54;

/// The program's kept registers.
pub(super) const CONTEXT: u8 = 6;
const DATA: u8 = 7;
const END: u8 = 8;
const META: u8 = 9;
const STACK: u8 = 10;

/// A flow as the program finds it in a frame: source and destination (IPv4 mapped), ports in network order, protocol.
type Key = [u64; 5];

/// Offsets of the key's parts from the end of the stack.
const SOURCE: i16 = -40;
const DESTINATION: i16 = -24;
const PORTS: i16 = -8;
const PROTOCOL: i16 = -4;
/// Offsets in a mapped address: ffff, and the IPv4 address.
const MAPPED: i16 = 10;
const IPV4: i16 = 12;

/// FIN, SYN, RST.
const ENDS: i32 = 0x07;

/// The flows with a mark.
pub(super) type Marks = Map<Key, u64>;

pub(super) fn marks(flows: u32) -> io::Result<Marks> {
    Map::new(BPF_MAP_TYPE_HASH, flows, None)
}

/// Returns the mark from the bytes in front of a frame.
#[inline]
pub(super) fn mark_of(bytes: [u8; BYTES]) -> Option<u32> {
    u32::try_from(u64::from_ne_bytes(bytes).checked_sub(1)?).ok()
}

/// Writes the part of the program that marks a frame. It ends where the frame is redirected, or at `pass`.
pub(super) fn write(code: &mut Assembly, marks: &Marks, pass: Label) {
    let (redirect, ipv4, transport, lookup) =
        (code.label(), code.label(), code.label(), code.label());
    reserve(code, pass);
    within(code, 54, redirect);
    for part in 0..5 {
        code.store_number(Width::Double, STACK, SOURCE + 8 * part, 0);
    }
    code.load(Width::Half, 1, DATA, 12);
    code.jump_if_equal(1, network_order(0x0800), ipv4);
    code.jump_unless_equal(1, network_order(0x86dd), redirect);

    within(code, 74, redirect);
    for part in 0..4 {
        code.load(Width::Double, 1, DATA, 22 + 8 * part);
        code.store(Width::Double, STACK, SOURCE + 8 * part, 1);
    }
    code.load(Width::Byte, 2, DATA, 20);
    code.copy(3, DATA);
    code.increase(3, 54);
    code.jump(transport);

    code.place(ipv4);
    code.load(Width::Byte, 1, DATA, 14);
    code.jump_unless_equal(1, 0x45, redirect);
    // More fragments, or an offset.
    code.load(Width::Half, 1, DATA, 20);
    code.mask(1, network_order(0x3fff));
    code.jump_unless_equal(1, 0, redirect);
    for (address, from) in [(SOURCE, 26), (DESTINATION, 30)] {
        code.store_number(Width::Half, STACK, address + MAPPED, 0xffff);
        code.load(Width::Word, 1, DATA, from);
        code.store(Width::Word, STACK, address + IPV4, 1);
    }
    code.load(Width::Byte, 2, DATA, 23);
    code.copy(3, DATA);
    code.increase(3, 34);

    code.place(transport);
    code.load(Width::Word, 1, 3, 0);
    code.store(Width::Word, STACK, PORTS, 1);
    code.store(Width::Word, STACK, PROTOCOL, 2);
    code.jump_if_equal(2, libc::IPPROTO_UDP, lookup);
    code.jump_unless_equal(2, libc::IPPROTO_TCP, redirect);
    code.load(Width::Byte, 1, 3, 13);
    code.mask(1, ENDS);
    code.jump_unless_equal(1, 0, redirect);

    code.place(lookup);
    code.load_map(1, marks.descriptor());
    code.copy(2, STACK);
    code.increase(2, i32::from(SOURCE));
    code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
    code.jump_if_equal(0, 0, redirect);
    code.load(Width::Double, 1, 0, 0);
    code.store(Width::Double, META, 0, 1);
    code.place(redirect);
}

/// Reserves the bytes in front of the frame, without a mark, and loads the registers.
fn reserve(code: &mut Assembly, pass: Label) {
    code.set(2, -(BYTES as i32));
    code.call(BPF_FUNC_XDP_ADJUST_META);
    code.jump_unless_equal(0, 0, pass);
    // struct xdp_md: data, data_end, data_meta
    code.load(Width::Word, DATA, CONTEXT, 0);
    code.load(Width::Word, END, CONTEXT, 4);
    code.load(Width::Word, META, CONTEXT, 8);
    code.copy(1, META);
    code.increase(1, BYTES as i32);
    code.jump_if_greater(1, DATA, pass);
    code.store_number(Width::Double, META, 0, 0);
}

/// Leaves for `otherwise` if the frame is shorter.
fn within(code: &mut Assembly, bytes: i32, otherwise: Label) {
    code.copy(1, DATA);
    code.increase(1, bytes);
    code.jump_if_greater(1, END, otherwise);
}

fn network_order(number: u16) -> i32 {
    number.to_be().into()
}

fn key(flow: &Match) -> Key {
    let mut bytes = [0; 40];
    bytes[..16].copy_from_slice(&flow.source);
    bytes[16..32].copy_from_slice(&flow.destination);
    bytes[32..34].copy_from_slice(&flow.source_port.to_be_bytes());
    bytes[34..36].copy_from_slice(&flow.destination_port.to_be_bytes());
    bytes[36..].copy_from_slice(&u32::from(flow.protocol).to_ne_bytes());
    std::array::from_fn(|part| {
        u64::from_ne_bytes(std::array::from_fn(|byte| bytes[8 * part + byte]))
    })
}

/// A receive ring, and the number of its frames that were processed.
pub(super) struct Progress {
    pub(super) arrived: Watcher,
    pub(super) processed: Arc<AtomicU32>,
}

/// Returns the present moment of these rings.
pub(super) fn moment(rings: &[Progress]) -> Moment {
    Moment(rings.iter().map(|ring| ring.arrived.get()).collect())
}

/// Tells whether all frames that had arrived by this moment were processed.
pub(super) fn is_past(rings: &[Progress], moment: &Moment) -> bool {
    rings.iter().zip(&moment.0).all(|(ring, arrived)| {
        let processed = ring.processed.load(Ordering::Acquire);
        processed.wrapping_sub(*arrived) as i32 >= 0
    })
}

/// The program's matches, and the frames that may carry their marks.
pub(super) struct Marking {
    marks: Arc<Marks>,
    flows: u32,
    rings: Vec<Progress>,
    /// A change of a map of maps waits until no program runs that may have seen the old content.
    barrier: Map<u32, i32>,
    content: Map<u32, u32>,
}

impl Marking {
    pub(super) fn new(marks: Arc<Marks>, flows: u32, rings: Vec<Progress>) -> io::Result<Self> {
        let content = Map::new(BPF_MAP_TYPE_ARRAY, 1, None)?;
        let kind = BPF_MAP_TYPE_ARRAY_OF_MAPS;
        Ok(Self {
            barrier: Map::new(kind, 1, Some(content.descriptor()))?,
            marks,
            flows,
            rings,
            content,
        })
    }
}

impl Matcher for Marking {
    fn capacity(&self) -> u32 {
        self.flows
    }

    fn clear(&mut self) -> io::Result<()> {
        // The map ends with its process.
        Ok(())
    }

    fn put(&mut self, flow: &Match, mark: u32) -> io::Result<()> {
        self.marks.put(&key(flow), &(u64::from(mark) + 1))
    }

    fn remove(&mut self, flow: &Match) -> io::Result<()> {
        match self.marks.remove(&key(flow)) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            done => done,
        }
    }

    fn wait(&mut self) -> io::Result<Moment> {
        // The kernel may reuse a removed entry at once: a program that has found it could read another flow's mark.
        self.barrier
            .put(&0, &self.content.descriptor().as_raw_fd())?;
        Ok(moment(&self.rings))
    }

    fn is_past(&self, moment: &Moment) -> bool {
        is_past(&self.rings, moment)
    }
}
