//! Memory that outlives a process, which may be killed before any write.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe},
    rc::Rc,
};

use bytemuck::Zeroable;
use nf_offload::{Addition, Direction, Row, Rows, RuleId};

/// The end of a process at one of its writes.
#[derive(Debug)]
pub struct Killed;

#[derive(Debug)]
struct Inner {
    rows: Vec<Row>,
    addition: Addition,
    carried: BTreeMap<(u16, Direction), [u64; 2]>,
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
            carried: BTreeMap::new(),
            left: None,
        })))
    }

    pub fn kill_after(&self, writes: u32) {
        self.0.borrow_mut().left = Some(writes);
    }

    pub fn revive(&self) {
        self.0.borrow_mut().left = None;
    }

    pub fn carried_by(&self, backend: u16) -> u64 {
        let inner = self.0.borrow();
        let directions = [Direction::ToBackend, Direction::ToClient];
        let carried = directions.map(|direction| inner.carried.get(&(backend, direction)));
        carried
            .into_iter()
            .flatten()
            .map(|[packets, _]| packets)
            .sum()
    }

    /// Returns the packets of each rule that are in its backend's counts.
    pub fn counted(&self) -> BTreeMap<RuleId, u64> {
        self.0
            .borrow()
            .rows
            .iter()
            .map(|row| (row.rule(), row.counts()[0]))
            .collect()
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
        self.write(|inner| inner.rows[row] = *value);
    }

    fn addition(&self) -> Addition {
        self.0.borrow().addition
    }

    fn put_addition(&mut self, value: &Addition) {
        self.write(|inner| inner.addition = *value);
    }

    fn carried(&self, backend: u16, direction: Direction) -> [u64; 2] {
        self.0
            .borrow()
            .carried
            .get(&(backend, direction))
            .copied()
            .unwrap_or_default()
    }

    fn put_carried(&mut self, backend: u16, direction: Direction, counts: [u64; 2]) {
        self.write(|inner| {
            inner.carried.insert((backend, direction), counts);
        });
    }
}

/// Runs a process until its end, or until it is killed.
pub fn catch(run: impl FnOnce()) -> Result<(), Killed> {
    panic::catch_unwind(AssertUnwindSafe(run)).map_err(|cause| match cause.downcast::<()>() {
        Ok(_) => Killed,
        Err(cause) => panic::resume_unwind(cause),
    })
}
