//! What an instance is started with.

use std::os::fd::OwnedFd;

use nf_ports::Port;

use crate::{gate::FrameSource, Refusal};

/// Ports and state of an instance.
#[derive(Default)]
pub struct Options {
    /// Each with as many queues as the others: one for each worker.
    pub ports: Vec<Port>,
    /// Keep what arrives until a migration commits.
    pub hold: bool,
    /// The state of an instance that is no more.
    pub arena: Option<OwnedFd>,
    /// What that instance had received and not processed: comes before all that the ports deliver.
    pub backlog: Option<Box<dyn FrameSource>>,
}

impl Options {
    /// How many workers the ports are made for.
    pub(super) fn workers(&self) -> Result<usize, Refusal> {
        let Some(first) = self.ports.first() else {
            return Err(Refusal::new(
                "configuration",
                "an instance needs a port at least",
            ));
        };
        let workers = first.queues.len();
        for port in &self.ports {
            if port.queues.len() != workers || workers == 0 {
                let (name, queues) = (&port.name, port.queues.len());
                let detail = format!(
                    "port {name}: {queues} queues, expected {workers}, as many as port {} has",
                    first.name
                );
                return Err(Refusal::new("configuration", detail));
            }
        }
        Ok(workers)
    }
}
