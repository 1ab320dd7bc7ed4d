//! Moves that go on after a restart: what the journal is told of them, and how they are taken up again.

use crate::api::{MoveStage, PortError, HOME};
use crate::journal::moves::{self, Reached, SavedMove};
use crate::server::ports::{Executor, Move, VirtualPort};
use crate::Core;
use tracing::{info, warn};

impl Core {
    /// For the journal. What is done comes first, in the order in which it was: so a goal that another port has left is free.
    pub(crate) fn saved_moves(&self) -> Vec<u8> {
        let switch_name = |switch: usize| self.switches[switch].name.clone();
        let save = |port: &VirtualPort, moving: &Move, is_done: bool| {
            SavedMove::of(port.number, &port.name, moving, is_done, &switch_name)
        };
        let mut done: Vec<_> = self
            .ports
            .iter()
            .filter_map(|port| Some((port.unsaved.as_ref()?, port)))
            .collect();
        done.sort_by_key(|((revision, _), _)| *revision);
        let done = done.into_iter();
        let done = done.map(|((_, moving), port)| save(port, moving, true));
        let under_way = self.ports.iter();
        let under_way = under_way.filter_map(|p| Some(save(p, p.moving.as_ref()?, false)));
        moves::encode(&done.chain(under_way).collect::<Vec<_>>())
    }

    /// Whether the port map is not where a restarted daemon finds it: the journal knew of moves that it does not know.
    pub fn has_unsaved_ports(&self) -> bool {
        self.ports.iter().any(|port| port.unsaved.is_some())
    }

    /// The port map of this revision is where a restarted daemon finds it: what the journal keeps of moves that led to it can go.
    pub fn ports_are_saved(&mut self, revision: u64) {
        for port in self.ports.iter_mut() {
            if port.unsaved.take_if(|(at, _)| *at <= revision).is_some() {
                self.journal.unsettled = true;
            }
        }
    }

    /// Goes on with a move that the journal tells of, before anybody is connected: it reaches its stage again when the bridges that it rests on
    /// have confirmed it. One that was done has led to where it says, also where
    /// the port map was not saved any more; one whose port or goal is gone is forgotten.
    pub(crate) fn resume_move(&mut self, saved: &SavedMove) {
        let (number, to, interface) = (saved.number, &saved.switch, &saved.interface);
        if let Err(reason) = self.restore_move(saved) {
            warn!(target: "core", port = number, %to, %interface, "move: forgotten: {reason}");
        }
    }

    fn restore_move(&mut self, saved: &SavedMove) -> Result<(), PortError> {
        let number = saved.number;
        let to = self.locate(&saved.switch, &saved.interface)?;
        let executor = self.executor_named(saved.executor.as_deref().unwrap_or(HOME))?;
        if let Some(other) = self.ports.at(&to).filter(|p| p.number != number) {
            return Err(PortError::InterfaceTaken {
                switch: saved.switch.clone(),
                interface: saved.interface.clone(),
                number: other.number,
            });
        }
        // Of another name: the number was given to another port meanwhile.
        let named = self.ports.get(number).filter(|p| p.name == saved.name);
        named.ok_or(PortError::PortUnknown(number))?;
        if executor != Executor::Home {
            self.ports.allocate_ingress(number)?;
        }
        let revision = self.ports.revision + 1;
        let port = self.ports.get_mut(number);
        let port = port.ok_or(PortError::PortUnknown(number))?;
        let stage = match saved.reached {
            Reached::Old => MoveStage::Preparing,
            Reached::New => MoveStage::Flipping,
            Reached::Done => {
                port.arrive(to.clone(), executor);
                if executor == Executor::Home {
                    port.ingress_id = None;
                }
                let done = Move::new(to, executor, saved.until);
                port.unsaved = Some((revision, done));
                self.ports.revision = revision;
                return Ok(());
            }
        };
        port.moving = Some(Move {
            stage,
            settle: saved.settle,
            grace: saved.grace,
            counted_before: saved.baseline(),
            ..Move::new(to, executor, saved.until)
        });
        info!(target: "core", port = number, to = %saved.switch, interface = %saved.interface, "move: goes on");
        Ok(())
    }
}
