//! The threads of handshakes.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{sync_channel, Receiver, SyncSender},
        Arc, Mutex, PoisonError,
    },
    thread,
};

use rustls::ServerConfig;

use crate::handshake::{Established, Handshake, Progress};

/// The messages that wait for one thread.
const WAITING: usize = 1024;

/// A step of a handshake.
#[derive(Debug)]
pub struct Outcome {
    /// The number that the caller gave the handshake.
    pub number: u64,
    /// The bytes to send to the client.
    pub bytes: Vec<u8>,
    /// None: the client must send more. An error: the bytes end with an alert.
    pub result: Option<Result<Box<Established>, String>>,
}

enum Job {
    Begin(u64, Arc<ServerConfig>, Vec<u8>),
    Continue(u64, Vec<u8>),
    Forget(u64),
}

/// Threads that run handshakes. They end when this is dropped.
pub struct Handshakes {
    threads: Vec<SyncSender<Job>>,
    done: Arc<Done>,
}

#[derive(Default)]
struct Done {
    outcomes: Mutex<VecDeque<Outcome>>,
    count: AtomicUsize,
}

impl Handshakes {
    /// Starts the threads. `wake` is called after each step.
    #[must_use]
    pub fn start(threads: usize, wake: impl Fn() + Clone + Send + 'static) -> Self {
        let done = Arc::new(Done::default());
        let threads = (0..threads.max(1)).map(|_| {
            let (sender, jobs) = sync_channel(WAITING);
            let (done, wake) = (Arc::clone(&done), wake.clone());
            thread::spawn(move || run(&jobs, &done, wake));
            sender
        });
        Self {
            threads: threads.collect(),
            done,
        }
    }

    /// Begins a handshake with the client's first bytes. Returns false if there are too many: the client must repeat them.
    pub fn begin(&self, number: u64, config: &Arc<ServerConfig>, bytes: Vec<u8>) -> bool {
        self.send(number, Job::Begin(number, Arc::clone(config), bytes))
    }

    /// Hands a handshake further bytes, like [`begin`](Self::begin).
    pub fn proceed(&self, number: u64, bytes: Vec<u8>) -> bool {
        self.send(number, Job::Continue(number, bytes))
    }

    /// Ends a handshake.
    pub fn forget(&self, number: u64) {
        self.send(number, Job::Forget(number));
    }

    fn send(&self, number: u64, job: Job) -> bool {
        let thread = number as usize % self.threads.len().max(1);
        let thread = self.threads.get(thread);
        thread.is_some_and(|thread| thread.try_send(job).is_ok())
    }

    /// Takes the next step that is done.
    #[must_use]
    pub fn take(&self) -> Option<Outcome> {
        if self.done.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut outcomes = lock(&self.done.outcomes);
        let outcome = outcomes.pop_front();
        self.done.count.store(outcomes.len(), Ordering::Release);
        outcome
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Each change is whole, so the content is valid even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(jobs: &Receiver<Job>, done: &Done, wake: impl Fn()) {
    let mut handshakes = HashMap::new();
    while let Ok(job) = jobs.recv() {
        let outcome = match job {
            Job::Begin(number, config, bytes) => match Handshake::new(&config) {
                Ok(handshake) => step(&mut handshakes, number, handshake, &bytes),
                Err(error) => Outcome {
                    number,
                    bytes: Vec::new(),
                    result: Some(Err(error.to_string())),
                },
            },
            Job::Continue(number, bytes) => match handshakes.remove(&number) {
                Some(handshake) => step(&mut handshakes, number, handshake, &bytes),
                None => continue,
            },
            Job::Forget(number) => {
                handshakes.remove(&number);
                continue;
            }
        };
        let mut outcomes = lock(&done.outcomes);
        outcomes.push_back(outcome);
        done.count.store(outcomes.len(), Ordering::Release);
        drop(outcomes);
        wake();
    }
}

fn step(
    handshakes: &mut HashMap<u64, Handshake>,
    number: u64,
    handshake: Handshake,
    bytes: &[u8],
) -> Outcome {
    let mut out = Vec::new();
    let result = match handshake.feed(bytes, &mut out) {
        Progress::Continues(handshake) => {
            handshakes.insert(number, *handshake);
            None
        }
        Progress::Done(established) => Some(Ok(established)),
        Progress::Failed(reason) => Some(Err(reason)),
    };
    Outcome {
        number,
        bytes: out,
        result,
    }
}
