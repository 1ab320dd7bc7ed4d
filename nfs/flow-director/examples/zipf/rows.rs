//! The ledger's memory, which nothing outlives here.

use bytemuck::Zeroable;
use nf_offload::{Addition, CounterId, Row, Rows, Tally};

pub struct Memory {
    rows: Vec<Row>,
    addition: Addition,
}

impl Memory {
    pub fn new(rows: usize) -> Self {
        Self {
            rows: vec![Row::zeroed(); rows],
            addition: Addition::zeroed(),
        }
    }
}

impl Rows for Memory {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn get(&self, row: usize) -> Row {
        self.rows[row]
    }

    fn put(&mut self, row: usize, value: &Row) {
        self.rows[row] = *value;
    }

    fn addition(&self) -> Addition {
        self.addition
    }

    fn put_addition(&mut self, value: &Addition) {
        self.addition = *value;
    }

    fn counters(&self) -> usize {
        0
    }

    fn tally(&self, _counter: CounterId) -> Tally {
        Tally::zeroed()
    }

    fn put_tally(&mut self, _counter: CounterId, _value: &Tally) {}

    fn has_baseline(&self) -> bool {
        true
    }

    fn put_baseline(&mut self) {}
}
