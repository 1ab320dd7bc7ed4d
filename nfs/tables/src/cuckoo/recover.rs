//! Repairs a table whose instance was killed within a change.

use crate::Key;

use super::{
    header,
    place::SLOTS,
    record,
    slots::{Core, Found},
    words::Words,
};

impl<K: Key, W: Words> Core<K, W> {
    /// Scans the whole table if a change was interrupted: 2 ms per million slots. No other thread may change records meanwhile.
    pub(super) fn recover_if_needed(&self) {
        let (_, under_way) = header::counted(self.words);
        if under_way != 0 {
            self.recover();
        }
    }

    pub(super) fn recover(&self) {
        let mut records = 0;
        for bucket in 0..self.shape.buckets {
            for (slot, data) in self.data(bucket).into_iter().enumerate() {
                let index = self.base(bucket) + slot;
                if data & record::LOCK != 0 {
                    self.change(index, |data| Some(data & !record::LOCK));
                }
                let half_filled = record::is_claimed(data);
                if half_filled || self.is_second_copy(Found { bucket, slot, data }) {
                    self.change(index, |data| Some(record::emptied(data)));
                } else if record::is_record(data) {
                    records += 1;
                }
            }
        }
        header::set_count(self.words, records);
    }

    /// Tells whether this record is in its second bucket while the first has it as well: its move was interrupted.
    fn is_second_copy(&self, Found { bucket, slot, data }: Found) -> bool {
        if !record::is_record(data) || data & record::SECOND == 0 {
            return false;
        }
        let lanes = self.lanes(bucket, slot);
        let first = self.other(&lanes, bucket);
        let wanted = data ^ record::SECOND;
        let twin = |slot: usize, other: u64| {
            self.shape.fields.matches(other, wanted) && self.lanes(first, slot) == lanes
        };
        let others: [u64; SLOTS] = self.data(first);
        (0..SLOTS).any(|slot| twin(slot, others[slot]))
    }
}
