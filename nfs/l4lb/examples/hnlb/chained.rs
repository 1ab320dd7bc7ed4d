//! A hash table as a load balancer without this project's tables has one: chains of allocated nodes, Jenkins' hash, one lookup after another.

use nf_tables::Ipv4Flow;

struct Node {
    flow: Ipv4Flow,
    value: u32,
    next: Option<Box<Node>>,
}

pub struct Chained {
    buckets: Vec<Option<Box<Node>>>,
}

impl Chained {
    /// `capacity`: the most flows, a power of two.
    pub fn new(capacity: usize) -> Self {
        Self {
            buckets: (0..capacity).map(|_| None).collect(),
        }
    }

    fn bucket(&self, flow: &Ipv4Flow) -> usize {
        hash(flow) as usize & (self.buckets.len() - 1)
    }

    pub fn insert(&mut self, flow: Ipv4Flow, value: u32) {
        let bucket = self.bucket(&flow);
        let next = self.buckets[bucket].take();
        self.buckets[bucket] = Some(Box::new(Node { flow, value, next }));
    }

    pub fn get(&self, flow: &Ipv4Flow) -> Option<u32> {
        let mut node = self.buckets[self.bucket(flow)].as_deref();
        while let Some(here) = node {
            if here.flow == *flow {
                return Some(here.value);
            }
            node = here.next.as_deref();
        }
        None
    }
}

/// Hashes the 5-tuple: Jenkins' lookup3 for four words.
fn hash(flow: &Ipv4Flow) -> u32 {
    let seed = 0xdead_beef_u32.wrapping_add(16);
    let ports = u32::from(flow.source_port) << 16 | u32::from(flow.destination_port);
    let mut a = seed.wrapping_add(flow.source.to_bits());
    let mut b = seed.wrapping_add(flow.destination.to_bits());
    let mut c = seed.wrapping_add(ports);
    a = a.wrapping_sub(c) ^ c.rotate_left(4);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(6);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(8);
    b = b.wrapping_add(a);
    a = a.wrapping_sub(c) ^ c.rotate_left(16);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(19);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(4);
    b = b.wrapping_add(a);
    a = a.wrapping_add(u32::from(flow.protocol));
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}
