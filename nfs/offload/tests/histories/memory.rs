//! Memory that outlives a process, which may be killed before it writes any word.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe},
    rc::Rc,
};

use bytemuck::{Pod, Zeroable};
use nf_offload::{Addition, CounterId, Row, Rows, Tally};

/// Two of each backend.
const COUNTERS: usize = 2 * super::model::BACKENDS as usize;

/// The end of a process at one of its writes.
#[derive(Debug)]
pub struct Killed;

#[derive(Debug)]
struct Inner {
    rows: Vec<Row>,
    addition: Addition,
    tallies: BTreeMap<CounterId, Tally>,
    has_baseline: bool,
    /// Writes until the process is killed.
    left: Option<u32>,
}

#[derive(Clone, Debug)]
pub struct Memory(Rc<RefCell<Inner>>);

impl Memory {
    pub fn new(rows: usize) -> Self {
        Self(Rc::new(RefCell::new(Inner {
            rows: vec![Row::zeroed(); rows],
            addition: Addition::zeroed(),
            tallies: BTreeMap::new(),
            has_baseline: false,
            left: None,
        })))
    }

    pub fn kill_after(&self, writes: u32) {
        self.0.borrow_mut().left = Some(writes);
    }

    pub fn revive(&self) {
        self.0.borrow_mut().left = None;
    }

    fn write(&self, change: impl FnOnce(&mut Inner)) {
        let mut inner = self.0.borrow_mut();
        if let Some(left) = &mut inner.left {
            if *left == 0 {
                drop(inner);
                panic::resume_unwind(Box::new(()));
            }
            *left -= 1;
        }
        change(&mut inner);
    }
}

impl Rows for Memory {
    fn len(&self) -> usize {
        self.0.borrow().rows.len()
    }

    fn get(&self, row: usize) -> Row {
        self.0.borrow().rows[row]
    }

    fn put(&mut self, row: usize, value: &Row) {
        let words: [u64; 8] = bytemuck::cast(*value);
        for (at, word) in words.into_iter().enumerate() {
            self.write(|inner| words_of(&mut inner.rows[row])[at] = word);
        }
    }

    fn addition(&self) -> Addition {
        self.0.borrow().addition
    }

    fn put_addition(&mut self, value: &Addition) {
        let words = value.words();
        let mut order: Vec<usize> = (0..Addition::WORDS).collect();
        if words[0] != 0 {
            order.rotate_left(1);
        }
        for at in order {
            self.write(|inner| words_of(&mut inner.addition)[at] = words[at]);
        }
    }

    fn counters(&self) -> usize {
        COUNTERS
    }

    fn tally(&self, counter: CounterId) -> Tally {
        let inner = self.0.borrow();
        let known = inner.tallies.get(&counter).copied();
        known.unwrap_or_else(Tally::zeroed)
    }

    fn put_tally(&mut self, counter: CounterId, value: &Tally) {
        let words: [u64; 4] = bytemuck::cast(*value);
        for (at, word) in words.into_iter().enumerate() {
            self.write(|inner| {
                let tally = inner.tallies.entry(counter);
                words_of(tally.or_insert_with(Tally::zeroed))[at] = word;
            });
        }
    }

    fn has_baseline(&self) -> bool {
        self.0.borrow().has_baseline
    }

    fn put_baseline(&mut self) {
        self.write(|inner| inner.has_baseline = true);
    }
}

fn words_of<T: Pod>(value: &mut T) -> &mut [u64] {
    bytemuck::cast_slice_mut(std::slice::from_mut(value))
}

/// Runs a process until its end, or until it is killed.
pub fn catch(run: impl FnOnce()) -> Result<(), Killed> {
    panic::catch_unwind(AssertUnwindSafe(run)).map_err(|cause| match cause.downcast::<()>() {
        Ok(_) => Killed,
        Err(cause) => panic::resume_unwind(cause),
    })
}
