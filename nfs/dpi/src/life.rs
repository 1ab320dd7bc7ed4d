//! One life of the program: its rings, and the requests that have no answer yet.

use std::{collections::VecDeque, os::fd::OwnedFd, process};

use nf_arena::Region;

use crate::{
    rings::{AnswerReader, Garbage, Request, RequestWriter, MAX_OUTSTANDING},
    Answer, Catalogue,
};

/// Invariant: answers come in the order of their requests, so the front of `outstanding` is what the next one answers.
pub(crate) struct Life {
    requests: RequestWriter<Region>,
    answers: AnswerReader<Region>,
    outstanding: VecDeque<(u64, u64)>,
    /// Flows to forget that the ring had no room for.
    forgets: VecDeque<u64>,
    bell: OwnedFd,
    process: process::Child,
}

impl Life {
    pub(crate) fn new(
        (requests, answers): (RequestWriter<Region>, AnswerReader<Region>),
        bell: OwnedFd,
        process: process::Child,
    ) -> Self {
        Self {
            requests,
            answers,
            outstanding: VecDeque::with_capacity(MAX_OUTSTANDING),
            forgets: VecDeque::new(),
            bell,
            process,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends a request, and tells whether there was room.
    pub(crate) fn send(&mut self, request: &Request<'_>) -> Result<bool, Garbage> {
        // An earlier flow's end goes first: its number may be this flow's now.
        while let Some(&flow) = self.forgets.front() {
            if !self.requests.write(&Request::Forget { flow })? {
                return Ok(false);
            }
            self.forgets.pop_front();
        }
        if self.outstanding.len() == MAX_OUTSTANDING || !self.requests.write(request)? {
            return Ok(false);
        }
        self.outstanding.extend(request.expects());
        if self.requests.must_wake() {
            self.ring();
        }
        Ok(true)
    }

    pub(crate) fn forget(&mut self, flow: u64) -> Result<(), Garbage> {
        if !self.send(&Request::Forget { flow })? {
            self.forgets.push_back(flow);
        }
        Ok(())
    }

    fn ring(&self) {
        // Fails when the bell has 2^64 - 2 unread rings, which are noticed as well.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Takes answers that are there, at most `most`.
    pub(crate) fn take(
        &mut self,
        into: &mut Vec<Answer>,
        most: usize,
        catalogue: &Catalogue,
    ) -> Result<(), Garbage> {
        let ready = self.answers.ready(self.outstanding.len())?;
        for _ in 0..ready.min(most) {
            let answer = self.answers.take()?;
            catalogue.check(&answer).map_err(Garbage)?;
            let expected = self.outstanding.pop_front();
            if expected != Some((answer.flow, answer.sequence)) {
                let found = (answer.flow, answer.sequence);
                return Err(Garbage(format!(
                    "an answer to {found:?}, expected {expected:?}"
                )));
            }
            into.push(answer);
        }
        Ok(())
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Returns a number that grows with each answer, or None if all requests are answered.
    pub(crate) fn progress(&self) -> Option<u64> {
        let ready = self.answers.ready(self.outstanding.len());
        let waits = ready.map_or(true, |ready| ready < self.outstanding.len());
        waits.then(|| self.answers.progress())
    }

    /// Returns the packet that the program is at.
    fn at(&self) -> Option<(u64, u64)> {
        let ready = self.answers.ready(self.outstanding.len()).unwrap_or(0);
        self.outstanding.get(ready).copied()
    }

    pub(crate) fn kill(&mut self) {
        // Fails if it has ended by itself.
        let _ = self.process.kill();
    }

    /// Waits for the end of the program. Returns what it was at, and how it ended.
    pub(crate) fn end(mut self) -> (Option<(u64, u64)>, std::io::Result<process::ExitStatus>) {
        self.kill();
        let status = self.process.wait();
        (self.at(), status)
    }
}
