//! The thread that starts the program, waits for its end, and starts it again.

use std::{
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    process::ExitStatus,
    sync::{
        atomic::Ordering,
        mpsc::{self, Sender},
        Arc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec},
    fd::AsFd,
};

use crate::{
    connection::Ready,
    life::Life,
    rings::Rings,
    shared::{Phase, Shared},
    Settings,
};

/// A program that lived shorter than this is started again after a while only, which doubles each time up to the longest.
const SHORT: Duration = Duration::from_secs(2);
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Lives that may be short before the waits begin: a packet that ends the program ends it a few times in a row.
const FREE_STARTS: u32 = 8;

/// SIGKILL is how others end a program, and not a packet.
const SIGKILL: i32 = 9;

pub(crate) struct Supervisor {
    shared: Arc<Shared>,
    settings: Settings,
    wake: Box<dyn Fn() + Send>,
    stop: Arc<OwnedFd>,
}

/// A running program, from the supervisor's side.
struct Running {
    socket: OwnedFd,
    answers: OwnedFd,
}

/// Why the supervisor looks up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Stop,
    Ended,
    Answers,
    Nothing,
}

impl Supervisor {
    /// Starts the thread, and returns when it has started the program.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        settings: Settings,
        wake: Box<dyn Fn() + Send>,
        stop: &Arc<OwnedFd>,
    ) -> Result<JoinHandle<()>, String> {
        let supervisor = Self {
            shared: Arc::clone(shared),
            settings,
            wake,
            stop: Arc::clone(stop),
        };
        let (started, first) = mpsc::channel();
        let thread = thread::Builder::new().name("nf-dpi".into());
        let thread = thread
            .spawn(move || supervisor.run(&started))
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        match first.recv() {
            Ok(Ok(())) => Ok(thread),
            Ok(Err(reason)) => Err(reason),
            Err(_) => Err("the thread has ended".into()),
        }
    }

    fn run(&self, started: &Sender<Result<(), String>>) {
        let mut running = match self.launch() {
            Ok(running) => running,
            Err(reason) => return drop(started.send(Err(reason))),
        };
        let _ = started.send(Ok(()));
        let mut short = 0;
        loop {
            let since = Instant::now();
            if self.watch(&running) == Event::Stop {
                break;
            }
            self.bury();
            (self.wake)();
            short = if since.elapsed() < SHORT {
                short + 1
            } else {
                0
            };
            running = loop {
                if self.pause(short) {
                    return;
                }
                match self.launch() {
                    Ok(running) => break running,
                    Err(reason) => {
                        self.shared.state().last_end = Some(reason);
                        short += 1;
                    }
                }
            };
            (self.wake)();
        }
        self.end();
    }

    /// Starts the program: the beginning of a generation.
    fn launch(&self) -> Result<Running, String> {
        let system = |error: &dyn std::fmt::Display| format!("cannot start nf-dpi: {error}");
        let bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let requests = bell().map_err(|error| system(&error))?;
        let answers = bell().map_err(|error| system(&error))?;
        let (rings, arena) =
            Rings::create(self.settings.ring_bytes).map_err(|error| system(&error))?;
        let ready = Ready::start(&self.settings, &arena, [requests.as_fd(), answers.as_fd()])?;
        let known = self
            .shared
            .catalogue
            .get_or_init(|| ready.catalogue.clone());
        if *known != ready.catalogue {
            // Numbers in configurations and in verdicts would mean something else.
            let (old, new) = (&known.version, &ready.catalogue.version);
            let mut process = ready.process;
            let _ = process.kill();
            let _ = process.wait();
            return Err(format!(
                "nDPI was {old} and is {new} now: restart the network function"
            ));
        }
        let mut state = self.shared.state();
        state.life = Some(Life::new(rings.owner(), requests, ready.process));
        state.sentence = None;
        self.shared.generation.fetch_add(1, Ordering::AcqRel);
        self.shared.set_phase(&mut state, Phase::Replay);
        Ok(Running {
            socket: ready.socket,
            answers,
        })
    }

    /// Waits for the end of the program, or of the owner.
    fn watch(&self, running: &Running) -> Event {
        let patience = self.settings.patience;
        let (mut seen, mut looked) = (None, Instant::now());
        loop {
            match self.wait(running) {
                Event::Answers => {
                    let _ = rustix::io::read(&running.answers, &mut [0; 8]);
                    (self.wake)();
                }
                Event::Nothing => {}
                event => return event,
            }
            if looked.elapsed() < patience {
                continue;
            }
            let mut state = self.shared.state();
            let progress = state.life.as_ref().and_then(Life::progress);
            if progress.is_some() && progress == seen {
                state.sentence = Some(format!("it made no progress for {patience:?}"));
                state.life.iter_mut().for_each(Life::kill);
            }
            (seen, looked) = (progress, Instant::now());
        }
    }

    fn wait(&self, running: &Running) -> Event {
        let mut fds = [
            PollFd::new(&*self.stop, PollFlags::IN),
            PollFd::new(&running.socket, PollFlags::IN),
            PollFd::new(&running.answers, PollFlags::IN),
        ];
        let patience = self.settings.patience;
        if poll(&mut fds, Some(&timespec(patience))).is_err() {
            return Event::Nothing;
        }
        let [stop, socket, answers] = fds.map(|fd| !fd.revents().is_empty());
        match (stop, socket, answers) {
            (true, _, _) => Event::Stop,
            // After it is ready, the program sends nothing: whatever this is, it is the end.
            (_, true, _) => Event::Ended,
            (_, _, true) => Event::Answers,
            _ => Event::Nothing,
        }
    }

    /// Takes note of how the program has ended, and of the packet at which it did.
    fn bury(&self) {
        let Some(life) = self.take() else {
            return;
        };
        let (at, status) = life.end();
        let mut state = self.shared.state();
        let sentence = state.sentence.take();
        let guilty = sentence.is_some() || status.as_ref().is_ok_and(ended_by_itself);
        let mut words = match (sentence, status) {
            (Some(sentence), _) => sentence,
            (None, Ok(status)) => format!("it ended: {status}"),
            (None, Err(error)) => format!("it ended: {error}"),
        };
        if let (Some(packet), true) = (at, guilty) {
            state.accused += 1;
            words.push_str(&format!(", at packet {} of flow {}", packet.1, packet.0));
            if state.quarantine.accuse(packet) {
                words.push_str(", which is in quarantine now");
            }
        }
        state.last_end = Some(words);
    }

    /// Waits before the next start; true: the owner ends.
    fn pause(&self, short: u32) -> bool {
        let doubled = short.saturating_sub(FREE_STARTS).min(16);
        let wait = if doubled == 0 {
            Duration::ZERO
        } else {
            (FIRST_WAIT * 2_u32.pow(doubled)).min(LONGEST_WAIT)
        };
        let mut fds = [PollFd::new(&*self.stop, PollFlags::IN)];
        poll(&mut fds, Some(&timespec(wait))).is_ok_and(|ready| ready > 0)
    }

    fn end(&self) {
        drop(self.take().map(Life::end));
    }

    /// Takes the program from the owner's threads.
    fn take(&self) -> Option<Life> {
        let mut state = self.shared.state();
        self.shared.set_phase(&mut state, Phase::Down);
        state.life.take()
    }
}

/// Tells whether the program may have ended because of a packet: not if it was killed (SIGKILL).
fn ended_by_itself(status: &ExitStatus) -> bool {
    status.signal() != Some(SIGKILL)
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
