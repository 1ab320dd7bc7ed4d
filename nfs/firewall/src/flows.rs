//! The table of flows: records in slots, and an index from keys to slots, all in the arena.
//!
//! One worker writes them. A pair of cache lines of the index has room for 16 flows, and 4 on average at most, so a full pair is rare; its next flow is refused.
//! A record is *hot* (what each packet needs) and *cold* (what the beginning of a flow needs). After a kill, index and free slots are made from the records.

use bytemuck::{Pod, Zeroable};
use nf_arena::{Memory, Region};
use nf_runtime::{
    state::{ByteQueue, HashKey, StateBuilder},
    Refusal,
};

use crate::{
    key::Key,
    words::{get, put, read, write},
};

/// The words of the index's header: the secret of the hash, free slots, and counts.
mod header {
    pub const SECRET: usize = 0;
    /// The first free slot plus 1, and the first slot that was never used.
    pub const FREE: usize = 2;
    pub const FRESH: usize = 3;
    pub const USED: usize = 4;
    pub const UNANSWERED: usize = 5;
    /// The last number of a flow.
    pub const NUMBER: usize = 6;
    pub const WORDS: usize = 8;
}

/// The places of a pair of cache lines.
const PLACES: usize = 16;
const HOT: usize = 10;
const COLD: usize = 14;
const RECORD: usize = HOT + COLD;
/// The bits of a flow's number that are its slot.
const SLOT_BITS: u32 = 24;

/// The stage of a flow.
pub mod stage {
    pub const FREE: u8 = 0;
    /// Its application is looked for.
    pub const WAITING: u8 = 1;
    pub const DECIDED: u8 = 2;
}

/// The state of a connection.
pub mod connection {
    /// Only one side has sent packets, or TCP's handshake is not complete.
    pub const UNANSWERED: u8 = 0;
    pub const ESTABLISHED: u8 = 1;
    pub const CLOSING: u8 = 2;
    /// Answered, but not TCP.
    pub const DATAGRAMS: u8 = 3;
}

/// The knowledge about an end's next sequence number.
pub mod counted {
    pub const NOTHING: u8 = 0;
    /// It has sent its SYN, or payload.
    pub const BYTES: u8 = 1;
    /// Its first segment was empty. A keep-alive has the number before the next one.
    pub const EMPTY: u8 = 2;
}

/// Bits of [`Hot::flags`].
pub mod flag {
    /// The rule has a rate of packets.
    pub const RATED: u8 = 0x01;
    /// TCP: the other side has sent its SYN.
    pub const ANSWERED: u8 = 0x02;
    /// FIN of the lower and of the higher end.
    pub const FIN: u8 = 0x04;
    /// Payload of the lower or higher end was inspected and may be retransmitted with another content.
    pub const GUARDED: u8 = 0x10;
    /// No answer about its application came.
    pub const UNDECIDED: u8 = 0x40;
    /// Its application is known.
    pub const KNOWN: u8 = 0x80;
}

/// The part of a flow that each packet needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Hot {
    pub key: Key,
    pub stage: u8,
    pub action: u8,
    pub connection: u8,
    pub flags: u8,
    /// The row of the rule's counters.
    pub row: u16,
    /// The end that opened it, and the port by which that end's packets come.
    pub client: u8,
    pub port: u8,
    /// The time of its last packet.
    pub seen: u64,
    /// The generation of the rules that decided it.
    pub generation: u64,
    pub packets: u64,
    pub bytes: u64,
}

/// The part of a flow that only its beginning needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Cold {
    /// Its number, which no other flow gets. Its slot is part of it.
    pub id: u64,
    pub created: u64,
    /// Its first packets.
    pub prefix: ByteQueue,
    /// TCP: the next sequence number of each end.
    pub next: [u32; 2],
    pub master: u16,
    pub application: u16,
    pub category: u16,
    /// How many packets the prefix has, how many of them the inspector has got, and how many have left.
    pub stored: u8,
    pub submitted: u8,
    pub released: u8,
    /// How many of the submitted ones were answered.
    pub answered: u8,
    /// How far `next` of each end is known, by `counted`.
    pub counted: [u8; 2],
    /// 1: the inspector was asked for its best guess after the last packet.
    pub given_up: u8,
    /// 1: `ja3` is known.
    pub has_ja3: u8,
    /// 1: the answer to the last submitted packet may end the inspection.
    pub is_telling: u8,
    pub reserved: u8,
    pub ja3: [u8; 16],
    pub spare: [u64; 3],
}

const _: () = assert!(size_of::<Hot>() == HOT * 8 && size_of::<Cold>() == COLD * 8);

/// The table.
#[derive(Clone)]
pub struct Flows {
    index: Region,
    records: Region,
    capacity: usize,
    pairs: usize,
}

impl Flows {
    /// # Errors
    /// If memory runs out.
    pub fn declare(capacity: usize, state: &mut StateBuilder) -> Result<Self, Refusal> {
        let pairs = capacity.div_ceil(4).next_power_of_two();
        let layout = format!("flows v1, {capacity}");
        let flows = Self {
            index: state.region("flow index", &layout, header::WORDS + pairs * PLACES)?,
            records: state.region("flows", &layout, capacity * RECORD)?,
            capacity,
            pairs,
        };
        if !state.is_adopted() {
            for (place, word) in HashKey::random().0.into_iter().enumerate() {
                put(&flows.index, header::SECRET + place, word);
            }
        }
        let torn = flows.clone();
        state.on_repair(move || torn.rebuild());
        Ok(flows)
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn len(&self) -> usize {
        get(&self.index, header::USED) as usize
    }

    pub fn unanswered(&self) -> usize {
        get(&self.index, header::UNANSWERED) as usize
    }

    /// Returns a key's hash.
    #[inline]
    pub fn hash(&self, key: &Key) -> u64 {
        HashKey(read(&self.index, header::SECRET)).hash(bytemuck::bytes_of(key))
    }

    #[inline]
    fn pair(&self, hash: u64) -> usize {
        header::WORDS + (hash as usize & (self.pairs - 1)) * PLACES
    }

    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let pair = self.pair(hash);
        self.index.prefetch(pair);
        self.index.prefetch(pair + PLACES / 2);
    }

    /// Prefetches the record of a slot.
    #[inline]
    pub fn prefetch_record(&self, slot: u32) {
        let at = slot as usize * RECORD;
        self.records.prefetch(at);
        self.records.prefetch(at + HOT - 1);
    }

    /// Returns a slot that may have the key.
    #[inline]
    pub fn guess(&self, hash: u64) -> Option<u32> {
        let pair = self.pair(hash);
        let words = &self.index.words()[pair..pair + PLACES];
        let tag = hash >> 32;
        words.iter().find_map(|word| {
            let word = word.load(std::sync::atomic::Ordering::Relaxed);
            (word >> 32 == tag && word as u32 != 0).then(|| word as u32 - 1)
        })
    }

    /// Finds a key's slot.
    #[inline]
    pub fn find(&self, key: &Key, hash: u64) -> Option<u32> {
        let pair = self.pair(hash);
        let tag = hash >> 32;
        (pair..pair + PLACES).find_map(|place| {
            let word = get(&self.index, place);
            let slot = (word as u32).checked_sub(1)?;
            (word >> 32 == tag && self.is(slot, key)).then_some(slot)
        })
    }

    fn is(&self, slot: u32, key: &Key) -> bool {
        let hot = self.hot(slot);
        hot.stage != stage::FREE && hot.key == *key
    }

    #[inline]
    pub fn hot(&self, slot: u32) -> Hot {
        bytemuck::cast::<[u64; HOT], Hot>(read(&self.records, slot as usize * RECORD))
    }

    #[inline]
    pub fn put_hot(&self, slot: u32, hot: &Hot) {
        let words = bytemuck::cast::<Hot, [u64; HOT]>(*hot);
        write(&self.records, slot as usize * RECORD, &words);
    }

    pub fn cold(&self, slot: u32) -> Cold {
        bytemuck::cast::<[u64; COLD], Cold>(read(&self.records, slot as usize * RECORD + HOT))
    }

    pub fn put_cold(&self, slot: u32, cold: &Cold) {
        let words = bytemuck::cast::<Cold, [u64; COLD]>(*cold);
        write(&self.records, slot as usize * RECORD + HOT, &words);
    }

    /// Returns the slot of a flow's number.
    pub fn slot_of(&self, id: u64) -> Option<u32> {
        let slot = (id & ((1 << SLOT_BITS) - 1)) as u32;
        let exists = (slot as usize) < self.capacity
            && self.hot(slot).stage != stage::FREE
            && self.cold(slot).id == id;
        exists.then_some(slot)
    }

    /// Inserts a flow whose key is not in the table; sets its number. None: the table is full.
    pub fn insert(&self, hash: u64, hot: &Hot, cold: &mut Cold) -> Option<u32> {
        let pair = self.pair(hash);
        let place = (pair..pair + PLACES).find(|place| get(&self.index, *place) == 0)?;
        let slot = self.take_slot()?;
        let number = get(&self.index, header::NUMBER) + 1;
        put(&self.index, header::NUMBER, number);
        cold.id = number << SLOT_BITS | u64::from(slot);
        cold.prefix = ByteQueue::new(slot);
        self.put_cold(slot, cold);
        self.put_hot(slot, hot);
        put(&self.index, place, hash >> 32 << 32 | u64::from(slot + 1));
        self.add(header::USED, 1);
        if hot.connection == connection::UNANSWERED {
            self.add(header::UNANSWERED, 1);
        }
        Some(slot)
    }

    fn take_slot(&self) -> Option<u32> {
        if let Some(slot) = get(&self.index, header::FREE).checked_sub(1) {
            // A free slot's first word leads to the next one.
            put(
                &self.index,
                header::FREE,
                get(&self.records, slot as usize * RECORD),
            );
            return Some(slot as u32);
        }
        let fresh = get(&self.index, header::FRESH);
        if fresh as usize >= self.capacity {
            return None;
        }
        put(&self.index, header::FRESH, fresh + 1);
        Some(fresh as u32)
    }

    /// Removes a flow, whose prefix must be empty.
    pub fn remove(&self, slot: u32) {
        let hot = self.hot(slot);
        if hot.stage == stage::FREE {
            return;
        }
        let pair = self.pair(self.hash(&hot.key));
        let its = |place: &usize| get(&self.index, *place) as u32 == slot + 1;
        if let Some(place) = (pair..pair + PLACES).find(its) {
            put(&self.index, place, 0);
        }
        self.free_slot(slot);
        self.add(header::USED, -1);
        if hot.connection == connection::UNANSWERED {
            self.add(header::UNANSWERED, -1);
        }
    }

    fn free_slot(&self, slot: u32) {
        self.put_hot(slot, &Hot::default());
        put(
            &self.records,
            slot as usize * RECORD,
            get(&self.index, header::FREE),
        );
        put(&self.index, header::FREE, u64::from(slot) + 1);
    }

    /// Notes that a flow was answered.
    pub fn answered(&self) {
        self.add(header::UNANSWERED, -1);
    }

    fn add(&self, word: usize, change: i64) {
        put(
            &self.index,
            word,
            get(&self.index, word).saturating_add_signed(change),
        );
    }

    /// Returns the first slot that was never used.
    pub fn fresh(&self) -> u32 {
        get(&self.index, header::FRESH) as u32
    }

    /// Iterates over the slots of flows.
    pub fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.fresh()).filter(|slot| self.hot(*slot).stage != stage::FREE)
    }

    /// Makes index, free slots and counts from the records, after a kill.
    fn rebuild(&self) {
        for place in header::WORDS..header::WORDS + self.pairs * PLACES {
            put(&self.index, place, 0);
        }
        for word in [header::FREE, header::USED, header::UNANSWERED] {
            put(&self.index, word, 0);
        }
        let fresh = self.fresh().min(self.capacity as u32);
        for slot in (0..fresh).rev() {
            let hot = self.hot(slot);
            let hash = self.hash(&hot.key);
            let pair = self.pair(hash);
            let place = (pair..pair + PLACES).find(|place| get(&self.index, *place) == 0);
            let is_torn = !matches!(hot.stage, stage::WAITING | stage::DECIDED)
                || self.cold(slot).id & ((1 << SLOT_BITS) - 1) != u64::from(slot)
                || self.find(&hot.key, hash).is_some();
            match place {
                Some(place) if !is_torn => {
                    put(&self.index, place, hash >> 32 << 32 | u64::from(slot + 1));
                    self.add(header::USED, 1);
                    if hot.connection == connection::UNANSWERED {
                        self.add(header::UNANSWERED, 1);
                    }
                }
                _ => self.free_slot(slot),
            }
        }
    }
}

#[cfg(test)]
mod tests;
