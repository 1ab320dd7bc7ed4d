//! The engine's end of a writer's session.

use oneswitch_core::OffloadEvent;
use tokio::sync::mpsc;

/// A command of the engine to a writer's session.
#[derive(Debug)]
pub enum WriterCommand {
    /// Write these events.
    Tell(Vec<OffloadEvent>),
    /// The last lines are taken: resume reading.
    Resume,
}

#[derive(Clone, Debug)]
pub struct WriterHandle(mpsc::UnboundedSender<WriterCommand>);

impl WriterHandle {
    pub fn new(commands: mpsc::UnboundedSender<WriterCommand>) -> Self {
        Self(commands)
    }

    pub fn tell(&self, events: Vec<OffloadEvent>) {
        self.send(WriterCommand::Tell(events));
    }

    pub fn resume(&self) {
        self.send(WriterCommand::Resume);
    }

    fn send(&self, command: WriterCommand) {
        // An ended session has reported it, or will with the next event.
        let _ = self.0.send(command);
    }
}
