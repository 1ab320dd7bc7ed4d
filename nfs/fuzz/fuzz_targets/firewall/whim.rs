//! An inspector that keeps the order of its answers, and nothing else.

use std::{cell::Cell, sync::Mutex};

use nf_firewall::{Answer, Catalogue, Inspecting, Inspection, Known, Refused, Request};

thread_local! {
    /// Whether it answers each request.
    pub static IS_HONEST: Cell<bool> = const { Cell::new(false) };
}

/// Does what the last byte of a packet says.
#[derive(Default)]
pub struct Whim(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    answers: Vec<Answer>,
    generation: u64,
    /// The generation that has got its replay.
    ready: u64,
}

impl Inner {
    fn take(&mut self, request: Request<'_>) -> Result<(), Refused> {
        let (flow, sequence, byte) = match request {
            Request::Packet { flow, sequence, bytes, .. } => (flow, sequence, bytes.last().copied().unwrap_or(0)),
            Request::GiveUp { flow, sequence } => (flow, sequence, 1),
        };
        let is_honest = IS_HONEST.get();
        match byte >> 4 {
            _ if is_honest => {}
            1 => return Err(Refused::Later),
            2 => return Err(Refused::Never),
            3 => {
                self.generation += 1;
                self.answers.clear();
                return Err(Refused::Later);
            }
            4 => return Ok(()),
            _ => {}
        }
        let application = u16::from(byte >> 1 & 3);
        let host = if application == 1 { "www.example.com" } else { "" };
        let known = Known {
            master: if application == 3 { 2 } else { 0 },
            application,
            host: host.repeat(usize::from(byte >> 3 & 1) * 8 + 1),
            ..Known::default()
        };
        self.answers.push(Answer { flow, sequence, is_final: byte & 1 != 0, known });
        Ok(())
    }
}

impl Whim {
    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }
}

impl Inspection for Whim {
    fn start(_: &Inspecting, _: impl Fn() + Send + 'static) -> Result<Self, String> {
        Ok(Self(Mutex::new(Inner { generation: 1, ..Inner::default() })))
    }

    fn catalogue(&self) -> Catalogue {
        let names = ["Unknown", "HTTP", "TLS", "YouTube"].map(str::to_owned).to_vec();
        Catalogue { protocols: names.clone(), categories: names }
    }

    fn generation(&self) -> u64 {
        self.inner().generation
    }

    fn submit(&self, request: Request<'_>) -> Result<(), Refused> {
        let mut inner = self.inner();
        if inner.ready != inner.generation {
            return Err(Refused::Later);
        }
        inner.take(request)
    }

    fn replay(&self, generation: u64, request: Request<'_>) -> Result<(), Refused> {
        let mut inner = self.inner();
        if generation != inner.generation {
            return Err(Refused::Later);
        }
        inner.take(request)
    }

    fn replayed(&self, generation: u64) -> bool {
        let mut inner = self.inner();
        if generation == inner.generation {
            inner.ready = generation;
        }
        generation == inner.generation
    }

    fn forget(&self, _: u64) {}

    fn poll(&self, each: &mut dyn FnMut(Answer)) -> usize {
        let answers = std::mem::take(&mut self.inner().answers);
        let count = answers.len();
        answers.into_iter().for_each(each);
        count
    }
}
