//! The owner's side: requests, answers, generations.

use std::{
    fmt,
    os::fd::OwnedFd,
    sync::{atomic::Ordering, Arc},
    thread::JoinHandle,
};

use rustix::event::{eventfd, EventfdFlags};

use crate::{
    rings::MAX_PACKET,
    shared::{Phase, Shared, State},
    supervisor::Supervisor,
    Answer, Catalogue, Request, Settings,
};

/// The most answers taken at once, under the lock.
const POLL: usize = 64;

/// nDPI in a program of its own. All methods may be called from several threads. None waits for the program.
pub struct Inspector {
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    supervisor: Option<JoinHandle<()>>,
    nothing: Catalogue,
}

/// A request that the program does not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The ring is full. Poll, and try again.
    Full,
    /// The program is new: replay everything first.
    Replay,
    /// This replay was for an earlier program: begin again.
    Restarted,
    /// The program has ended and is being started.
    Down,
    /// The program ended several times at a packet of this flow.
    Quarantined,
    /// The packet is longer than 65,535 bytes.
    TooLong,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the ring of packets to nf-dpi is full",
            Self::Replay => "nf-dpi is new and must first get the earlier packets",
            Self::Restarted => "nf-dpi was started again during the replay",
            Self::Down => "nf-dpi has ended and is being started",
            Self::Quarantined => "nf-dpi has ended several times at a packet of this flow",
            Self::TooLong => "the packet is longer than 65,535 bytes",
        })
    }
}

impl std::error::Error for Refused {}

/// How the program is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// None: it is not running.
    pub pid: Option<u32>,
    /// Packets are taken: it runs, and everything was replayed.
    pub live: bool,
    pub generation: u64,
    /// Requests without an answer.
    pub outstanding: usize,
    pub quarantined: usize,
    /// The number of times that it has ended at a packet, kills by others not counted.
    pub ended_at_packets: u64,
    /// How it ended last, or why it could not be started.
    pub last_end: Option<String>,
}

impl Inspector {
    /// Starts the program. `wake` is called from another thread when there are answers, and when the generation has changed.
    ///
    /// # Errors
    /// If the program cannot be started, with what it says.
    pub fn start(settings: Settings, wake: impl Fn() + Send + 'static) -> Result<Self, String> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| format!("cannot make an eventfd: {error}"))?;
        let (shared, stop) = (Arc::new(Shared::default()), Arc::new(stop));
        let supervisor = Supervisor::start(&shared, settings, Box::new(wake), &stop)?;
        Ok(Self {
            shared,
            stop,
            supervisor: Some(supervisor),
            nothing: Catalogue::default(),
        })
    }

    /// Returns the number of the running program. When it has grown, everything must be replayed.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.shared.generation()
    }

    /// Tells whether packets are taken: the program runs, and everything was replayed.
    #[inline]
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.shared.live.load(Ordering::Acquire)
    }

    /// Returns the names of protocols and categories.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        self.shared.catalogue.get().unwrap_or(&self.nothing)
    }

    /// Gives the program a packet, or another request. Packets of all flows must come in the order of their arrival.
    ///
    /// # Errors
    /// See [`Refused`]; the program has not got it.
    pub fn submit(&self, request: Request<'_>) -> Result<(), Refused> {
        let mut state = self.shared.state();
        match state.phase {
            Phase::Live => send(&mut state, &request),
            Phase::Replay => Err(Refused::Replay),
            Phase::Down => Err(Refused::Down),
        }
    }

    /// Gives a new program a request that an earlier one has had, or would have had.
    ///
    /// # Errors
    /// See [`Refused`]; the program has not got it.
    pub fn replay(&self, generation: u64, request: Request<'_>) -> Result<(), Refused> {
        let mut state = self.shared.state();
        match state.phase {
            Phase::Down => Err(Refused::Down),
            _ if self.generation() != generation => Err(Refused::Restarted),
            // An owner that goes on after the end of its replay would bring the packets out of order.
            Phase::Live => Err(Refused::Restarted),
            Phase::Replay => send(&mut state, &request),
        }
    }

    /// Ends the replay: from now on [`submit`](Self::submit) takes packets. False: the program was started again in between.
    pub fn replayed(&self, generation: u64) -> bool {
        let mut state = self.shared.state();
        let whole = self.generation() == generation && state.phase != Phase::Down;
        if whole {
            self.shared.set_phase(&mut state, Phase::Live);
        }
        whole
    }

    /// Has the program forget a flow without a final answer, at once or when there is room. Also the number of a decided flow may only be used again after this.
    pub fn forget(&self, flow: u64) {
        let mut state = self.shared.state();
        state.quarantine.release(flow);
        let result = match &mut state.life {
            Some(life) => life.forget(flow),
            // The next program will never hear of it.
            None => Ok(()),
        };
        if let Err(garbage) = result {
            state.condemn(garbage);
        }
    }

    /// Calls `each` for answers that are there, at most 64, and returns their number. Each request has one answer, in the order of the requests.
    pub fn poll(&self, mut each: impl FnMut(&Answer)) -> usize {
        let mut answers = Vec::new();
        {
            let mut state = self.shared.state();
            let State {
                life: Some(life), ..
            } = &mut *state
            else {
                return 0;
            };
            if life.outstanding() == 0 {
                return 0;
            }
            if let Err(garbage) = life.take(&mut answers, POLL, self.catalogue()) {
                state.condemn(garbage);
            }
        }
        answers.iter().for_each(&mut each);
        answers.len()
    }

    #[must_use]
    pub fn status(&self) -> Status {
        let state = self.shared.state();
        Status {
            pid: state.life.as_ref().map(|life| life.pid()),
            live: state.phase == Phase::Live,
            generation: self.generation(),
            outstanding: state.life.as_ref().map_or(0, |life| life.outstanding()),
            quarantined: state.quarantine.flows(),
            ended_at_packets: state.accused,
            last_end: state.last_end.clone(),
        }
    }
}

fn send(state: &mut State, request: &Request<'_>) -> Result<(), Refused> {
    if matches!(request, Request::Packet(packet) if packet.bytes.len() > MAX_PACKET) {
        return Err(Refused::TooLong);
    }
    if state.quarantine.has(request.flow()) {
        return Err(Refused::Quarantined);
    }
    let Some(life) = &mut state.life else {
        return Err(Refused::Down);
    };
    match life.send(request) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Refused::Full),
        Err(garbage) => {
            state.condemn(garbage);
            Err(Refused::Down)
        }
    }
}

impl Drop for Inspector {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(supervisor) = self.supervisor.take() {
            let _ = supervisor.join();
        }
    }
}
