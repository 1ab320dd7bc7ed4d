//! The table's side of `bench/flowtable`: executes commands from standard input, and answers each with a line of numbers.
//!
//! | line | does | answers |
//! |---|---|---|
//! | `keys N` | makes N keys and a table for them | bytes of the table |
//! | `fill THREADS` | empties the table, inserts all keys | operations per microsecond of all threads; inserted |
//! | `lookup THREADS MILLIS` | looks up all keys in random order, in bulks of 32 | ns per lookup; found; looked up |
//! | `lines MILLIS` | reads the keys in that order, and two random cache lines for each, prefetched in bulks of 32, from as much memory as the table's: no table with two buckets per key can be faster | ns per key; 1; 1 |
//! | `beside MILLIS` | as `lookup` on one thread, while another removes and inserts other keys | as `lookup`, and that thread's operations per microsecond |
//! | `mixed MILLIS` | nine bulks of lookups, then 32 keys removed and inserted | ns per operation; found; looked up |
//!
//! Times are CPU times of the threads that did the work. Keys and their order are those of `bench/nf_benches/flowtable.c`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    io::BufRead,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use nf_arena::{prefetch, prefetch_level, Heap, Memory, FIRST_LEVEL, SECOND_LEVEL};
use nf_tables::{Class, Cuckoo, Entry, Insertion, Ipv4Flow, Lifetimes};
use rustix::time::{clock_gettime, ClockId};

const BULK: usize = 32;
const LINE_WORDS: usize = 8;

fn main() {
    let mut bench = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("standard input");
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words[index].parse::<u64>().expect("a number");
        let answer = match words[0] {
            "keys" => {
                drop(bench.take());
                let made = Bench::new(number(1) as usize);
                let bytes = made.bytes;
                bench = Some(made);
                format!("{bytes}")
            }
            command => {
                let bench: &Bench = bench.as_ref().expect("keys come first");
                match command {
                    "fill" => bench.fill(number(1) as usize),
                    "lookup" => bench.lookup(number(1) as usize, number(2)),
                    "lines" => bench.lines(number(1)),
                    "beside" => bench.beside(number(1)),
                    "mixed" => bench.mixed(number(1)),
                    other => unreachable!("command {other}"),
                }
            }
        };
        println!("{answer}");
    }
}

struct Bench {
    table: Cuckoo<Ipv4Flow, Heap>,
    bytes: usize,
    /// Writers remove and insert the last sixteenth while the others are looked up.
    keys: Vec<Ipv4Flow>,
    /// The stable keys in another order.
    shuffled: Vec<Ipv4Flow>,
    lifetimes: Lifetimes,
    start: Instant,
    /// The offset of its clock: a fill first lets all records expire.
    ahead: AtomicU64,
}

impl Bench {
    fn new(count: usize) -> Self {
        let words = Cuckoo::<Ipv4Flow, Heap>::words(count).unwrap();
        let keys: Vec<_> = (0..count as u64).map(flow).collect();
        let mut shuffled = keys[..stable(count)].to_vec();
        let mut state = 1;
        for index in (1..shuffled.len()).rev() {
            shuffled.swap(index, (mix(&mut state) % (index as u64 + 1)) as usize);
        }
        Self {
            table: Cuckoo::open(Heap::new(words).unwrap(), count).unwrap(),
            bytes: words * 8,
            keys,
            shuffled,
            lifetimes: Lifetimes::default(),
            start: Instant::now(),
            ahead: AtomicU64::new(0),
        }
    }

    fn now(&self) -> nf_tables::Now {
        let nanos = self.start.elapsed().as_nanos() as u64 + self.ahead.load(Ordering::Relaxed);
        self.lifetimes.at(nanos)
    }

    fn fill(&self, threads: usize) -> String {
        self.ahead.fetch_add(400_000_000_000, Ordering::Relaxed);
        self.table
            .age(self.table.slots(), &self.now(), &mut |_, _| {});
        assert!(self.table.is_empty());
        let share = self.keys.len().div_ceil(threads);
        let rates: f64 = on_threads(threads, |thread| {
            let keys = &self.keys[thread * share..self.keys.len().min((thread + 1) * share)];
            let begin = cpu_nanos();
            for bulk in keys.chunks(BULK) {
                self.insert(bulk);
            }
            keys.len() as f64 * 1e3 / (cpu_nanos() - begin)
        })
        .iter()
        .sum();
        format!("{rates} {}", self.table.len())
    }

    /// Inserts like a load balancer, which has looked up the keys before: their memory is prefetched.
    fn insert(&self, keys: &[Ipv4Flow]) {
        let now = self.now();
        for key in keys {
            self.table.prefetch(key);
        }
        for key in keys {
            let inserted = self.table.insert(key, entry(key), &now);
            assert_eq!(inserted, Ok(Insertion::Inserted { expired: None }));
        }
    }

    fn lookup(&self, threads: usize, millis: u64) -> String {
        let results = on_threads(threads, |thread| {
            self.look_up(thread * self.shuffled.len() / threads, millis)
        });
        let nanos = results.iter().map(|result| result.0).sum::<f64>() / threads as f64;
        let sum = |of: fn(&(f64, u64, u64)) -> u64| results.iter().map(of).sum::<u64>();
        format!("{nanos} {} {}", sum(|r| r.1), sum(|r| r.2))
    }

    /// Looks up the shuffled keys cyclically from `at` on; returns ns per lookup, found, looked up.
    fn look_up(&self, mut at: usize, millis: u64) -> (f64, u64, u64) {
        let mut found = [None; BULK];
        let (mut hits, mut looked_up) = (0, 0);
        let deadline = Instant::now() + Duration::from_millis(millis);
        let begin = cpu_nanos();
        while Instant::now() < deadline {
            let now = self.now();
            for _ in 0..64 {
                at = if at + BULK > self.shuffled.len() {
                    0
                } else {
                    at
                };
                let keys = &self.shuffled[at..at + BULK];
                self.table.lookup_bulk(keys, &now, &mut found);
                hits += count(keys, &found);
                looked_up += BULK as u64;
                at += BULK;
            }
        }
        ((cpu_nanos() - begin) / looked_up as f64, hits, looked_up)
    }

    fn lines(&self, millis: u64) -> String {
        match prefetch_level() {
            SECOND_LEVEL => self.lines_from::<SECOND_LEVEL>(millis),
            _ => self.lines_from::<FIRST_LEVEL>(millis),
        }
    }

    fn lines_from<const LEVEL: u8>(&self, millis: u64) -> String {
        let memory = Heap::new(self.bytes / 8).unwrap();
        let words = memory.words();
        for word in words.iter().step_by(LINE_WORDS) {
            // A page that was never written is the kernel's page of zeros, which is always in the cache.
            word.store(1, Ordering::Relaxed);
        }
        let lines = (words.len() / LINE_WORDS) as u64;
        let (mut keys, mut sum) = (0_u64, 0);
        let mut bulks = self.shuffled.chunks_exact(BULK).cycle();
        let deadline = Instant::now() + Duration::from_millis(millis);
        let begin = cpu_nanos();
        while Instant::now() < deadline {
            for bulk in bulks.by_ref().take(64) {
                let mut places = [[0; 2]; BULK];
                for (place, key) in places.iter_mut().zip(bulk) {
                    let random =
                        u64::from(u32::from(key.source)) | u64::from(key.source_port) << 32;
                    let random = random.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    *place = [random >> 32, random & 0xffff_ffff]
                        .map(|random| ((random * lines) >> 32) as usize * LINE_WORDS);
                    prefetch::<LEVEL>(words, place[0]);
                    prefetch::<LEVEL>(words, place[1]);
                }
                for place in places.as_flattened() {
                    sum += words[*place].load(Ordering::Relaxed);
                }
                keys += BULK as u64;
            }
        }
        let nanos = (cpu_nanos() - begin) / keys as f64;
        assert_eq!(sum, 2 * keys);
        format!("{nanos} 1 1")
    }

    fn beside(&self, millis: u64) -> String {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let begin = cpu_nanos();
                let mut written = 0;
                while !stop.load(Ordering::Relaxed) {
                    for keys in self.keys[stable(self.keys.len())..].chunks(BULK) {
                        written += self.replace(keys);
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                }
                written as f64 * 1e3 / (cpu_nanos() - begin)
            });
            let (nanos, hits, looked_up) = self.look_up(0, millis);
            stop.store(true, Ordering::Relaxed);
            format!("{nanos} {hits} {looked_up} {}", writer.join().unwrap())
        })
    }

    /// Removes and inserts keys; returns the number of operations.
    fn replace(&self, keys: &[Ipv4Flow]) -> u64 {
        let now = self.now();
        for key in keys {
            self.table.prefetch(key);
        }
        for key in keys {
            self.table.remove(key, &now);
        }
        for key in keys {
            self.table.insert(key, entry(key), &now).unwrap();
        }
        2 * keys.len() as u64
    }

    fn mixed(&self, millis: u64) -> String {
        let mut found = [None; BULK];
        let (mut hits, mut looked_up, mut operations) = (0, 0, 0);
        let mut changing = self.keys[stable(self.keys.len())..]
            .chunks_exact(BULK)
            .cycle();
        let mut bulks = self.shuffled.chunks_exact(BULK).cycle();
        let deadline = Instant::now() + Duration::from_millis(millis);
        let begin = cpu_nanos();
        while Instant::now() < deadline {
            let now = self.now();
            for keys in bulks.by_ref().take(9) {
                self.table.lookup_bulk(keys, &now, &mut found);
                hits += count(keys, &found);
                looked_up += BULK as u64;
            }
            operations += changing.next().map_or(0, |keys| self.replace(keys));
        }
        operations += looked_up;
        format!(
            "{} {hits} {looked_up}",
            (cpu_nanos() - begin) / operations as f64
        )
    }
}

/// Returns how many of `count` keys stay while others are written.
fn stable(count: usize) -> usize {
    count - count / 16
}

/// Counts the keys that were found with their own entry.
fn count(keys: &[Ipv4Flow], found: &[Option<Entry>]) -> u64 {
    keys.iter()
        .zip(found)
        .map(|(key, found)| u64::from(found.is_some_and(|found| found.value == value(key))))
        .sum()
}

fn value(key: &Ipv4Flow) -> u16 {
    key.source_port
}

fn entry(key: &Ipv4Flow) -> Entry {
    Entry {
        value: value(key),
        class: Class::Established,
    }
}

/// Advances SplitMix64.
fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut x = *state;
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Builds a flow with random client and ports, to one of 256 services.
fn flow(number: u64) -> Ipv4Flow {
    let mut state = number;
    let random = mix(&mut state);
    Ipv4Flow {
        source: (random as u32).into(),
        destination: (0xc633_0000 | (random >> 56) as u32).into(),
        source_port: (random >> 32) as u16,
        destination_port: 443,
        protocol: 6,
    }
}

fn cpu_nanos() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn on_threads<T: Send>(threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}
