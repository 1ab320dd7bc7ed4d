//! The tools of the tests: an inspector that waits, and packets.

#![allow(dead_code)] // each test uses a part

pub mod capture;
pub mod packets;
pub mod play;

use std::{
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver},
    time::Duration,
};

use nf_dpi::{Answer, Inspector, Refused, Request, Settings};

/// Far more than anything takes: an error, and not a hang.
const LIMIT: Duration = Duration::from_secs(60);

/// An inspector, and the sign that there may be answers.
pub struct Waiting {
    pub inspector: Inspector,
    bell: Receiver<()>,
}

/// The program of this package. None, with a line that says so: it was built without nDPI.
pub fn program() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_nf-dpi"));
    match Inspector::start(Settings::new(path.into()), || ()) {
        Err(reason) if reason.contains("without nDPI") => {
            eprintln!("SKIPPED: {reason}");
            None
        }
        _ => Some(path.into()),
    }
}

impl Waiting {
    pub fn start(settings: Settings) -> Self {
        let (sender, bell) = mpsc::channel();
        let wake = move || sender.send(()).unwrap_or_default(); // fails at the end of the test
        let inspector = Inspector::start(settings, wake).unwrap();
        Self { inspector, bell }
    }

    /// With nothing to replay.
    pub fn live(settings: Settings) -> Self {
        let this = Self::start(settings);
        assert!(this.inspector.replayed(this.inspector.generation()));
        this
    }

    pub fn wait(&self) {
        self.bell.recv_timeout(LIMIT).expect("nf-dpi says nothing");
    }

    /// Waits until the condition holds.
    pub fn until(&self, mut condition: impl FnMut(&Inspector) -> bool) {
        while !condition(&self.inspector) {
            self.wait();
        }
    }

    /// Submits a request, and returns its answer.
    pub fn ask(&self, request: Request<'_>) -> Answer {
        self.inspector.submit(request).unwrap();
        let mut found = None;
        self.until(|inspector| {
            inspector.poll(|answer| found = Some(answer.clone()));
            found.is_some()
        });
        found.unwrap()
    }

    /// As [`ask`](Self::ask), also when other requests have no answer yet.
    pub fn ask_after(&self, request: Request<'_>) -> Answer {
        let mut last = None;
        let mut note = |answer: &Answer| last = Some(answer.clone());
        self.push(&mut note, |inspector| inspector.submit(request))
            .unwrap();
        self.until(|inspector| {
            while inspector.poll(&mut note) > 0 {}
            inspector.status().outstanding == 0
        });
        last.unwrap()
    }

    /// Calls `submit` until the request is taken. Hands answers to `each` meanwhile; false: it was not taken, because the program has ended.
    pub fn push(
        &self,
        mut each: impl FnMut(&Answer),
        submit: impl Fn(&Inspector) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        loop {
            match submit(&self.inspector) {
                Err(Refused::Full) => {
                    if self.inspector.poll(&mut each) == 0 {
                        self.wait();
                    }
                }
                other => return other,
            }
        }
    }
}
