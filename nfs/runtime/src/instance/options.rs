//! The options of an instance.

use nf_ports::Port;

use crate::{gate::FrameSource, Refusal};

/// Ports of an instance, and its first packets.
#[derive(Default)]
pub struct Options {
    /// The ports, all with the same number of queues: one per worker.
    pub ports: Vec<Port>,
    /// Whether to hold arriving packets until a migration commits.
    pub hold: bool,
    /// The packets that an instance which has ended had received but not processed; they precede those from the ports.
    pub backlog: Option<Box<dyn FrameSource>>,
}

impl Options {
    /// Returns the number of workers that the ports were opened for. `prepared`: the number of ports that the function was created for.
    pub(super) fn workers(&self, prepared: usize) -> Result<usize, Refusal> {
        let Some(first) = self.ports.first() else {
            return Err(Refusal::new(
                "configuration",
                "an instance needs at least one port",
            ));
        };
        if self.ports.len() != prepared {
            let detail = format!("{} port(s), prepared for {prepared}", self.ports.len());
            return Err(Refusal::new("configuration", detail));
        }
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
