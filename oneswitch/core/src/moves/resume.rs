//! Resuming moves after a restart: their journal records, and their continuation.

use crate::api::{MoveStage, PortError, HOME};
use crate::journal::moves::{Reached, SavedMove};
use crate::moves::Moves;
use crate::server::ports::{Executor, Move, VirtualPort};
use crate::switches::Below;
use tracing::{info, warn};

impl Moves {
    /// Resumes a move from the journal, before any connection: it reaches its stage again when the bridges that it depends on have
    /// confirmed it. A finished move takes effect even if the port map was not saved; one whose port or goal no longer exists is dropped.
    pub fn resume_move(&mut self, below: &mut Below<'_>, saved: &SavedMove) {
        let (number, to, interface) = (saved.number, &saved.switch, &saved.interface);
        if let Err(reason) = self.restore_move(below, saved) {
            warn!(target: "core", port = number, %to, %interface, "move: dropped: {reason}");
        }
    }

    fn restore_move(&mut self, below: &mut Below<'_>, saved: &SavedMove) -> Result<(), PortError> {
        let number = saved.number;
        let to = below.switches.locate(&saved.switch, &saved.interface)?;
        let executor = below
            .switches
            .executor_named(saved.executor.as_deref().unwrap_or(HOME))?;
        let named = |name: &String| below.switches.executor_named(name);
        let own = saved.own.as_ref();
        let gathered_from = own.and_then(|own| own.gathered_from.as_ref());
        let gathered_from = gathered_from.map(named).transpose()?;
        let replaced = own.and_then(|own| own.replaced.as_ref());
        let replaced = replaced.map(named).transpose()?;
        if let Some(other) = below.server.ports.at(&to).filter(|p| p.number != number) {
            return Err(PortError::InterfaceTaken {
                switch: saved.switch.clone(),
                interface: saved.interface.clone(),
                number: other.number,
            });
        }
        // Of another name: the number has been given to another port.
        let named = below
            .server
            .ports
            .get(number)
            .filter(|p| p.name == saved.name);
        named.ok_or(PortError::PortUnknown(number))?;
        if executor != Executor::Home {
            below.server.ports.allocate_ingress(number)?;
        }
        let revision = below.server.ports.revision + 1;
        let port = below.server.ports.get_mut(number);
        let port = port.ok_or(PortError::PortUnknown(number))?;
        let keep_own = |port: &mut VirtualPort| {
            if let Some(own) = own {
                (port.executor_chosen, port.gathered_from) = (own.is_chosen, gathered_from);
            }
        };
        let stage = match saved.reached {
            Reached::Old => MoveStage::Preparing,
            Reached::New => MoveStage::Flipping,
            Reached::Done => {
                port.arrive(to.clone(), executor);
                keep_own(port);
                if executor == Executor::Home {
                    port.ingress_id = None;
                }
                let done = Move::new(to, executor, saved.until);
                port.unsaved = Some((revision, done));
                below.server.ports.revision = revision;
                return Ok(());
            }
        };
        keep_own(port);
        port.moving = Some(Move {
            stage,
            replaced,
            settle: saved.settle,
            grace: saved.grace,
            counted_before: saved.baseline(),
            ..Move::new(to, executor, saved.until)
        });
        info!(target: "core", port = number, to = %saved.switch, interface = %saved.interface, "move: goes on");
        Ok(())
    }
}
