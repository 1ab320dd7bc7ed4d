//! Current moves in the journal: a port whose packets already go to its new interface must not turn back because the daemon restarts.
//!
//! Write-ahead: journalled before taking effect. A finished move stays until the daemon has saved the port map, which then contains its
//! result.

use crate::api::{MoveStage, MoveUntil, HOME};
use crate::server::counters::counters;
use crate::server::ports::{Executor, Move, VirtualPort};
use crate::server::Server;
use openflow13::PortStats;
use std::time::Duration;

/// The progress of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// Nothing is sent to the new interface.
    Old,
    /// Its packets go to the new interface, or are about to.
    New,
    /// It is done; the resulting port map may not have been saved.
    Done,
}

/// Set in the byte of the progress if the record has an [`OwnExecutor`]; records of earlier versions have none.
const HAS_OWN: u8 = 0x80;

/// The executor that a port has by choice, by name, while it moves: the saved port map may be older.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnExecutor {
    pub is_chosen: bool,
    /// See [`VirtualPort::gathered_from`].
    pub gathered_from: Option<String>,
    /// See [`Move::replaced`].
    pub replaced: Option<String>,
}

impl OwnExecutor {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.is_chosen.into());
        for name in [&self.gathered_from, &self.replaced] {
            put_text(out, name.as_deref().unwrap_or_default());
        }
    }

    fn decode(input: &mut &[u8]) -> Option<Self> {
        let [is_chosen] = array(input)?;
        let name = |text: String| (!text.is_empty()).then_some(text);
        Some(Self {
            is_chosen: is_chosen != 0,
            gathered_from: name(text(input)?),
            replaced: name(text(input)?),
        })
    }
}

/// A move: port, progress and goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedMove {
    pub number: u32,
    pub reached: Reached,
    pub until: MoveUntil,
    pub settle: Duration,
    pub grace: Duration,
    pub name: String,
    pub switch: String,
    pub interface: String,
    /// The switch; `None`: the home.
    pub executor: Option<String>,
    /// In the order of `ofp_port_stats`.
    pub counted_before: Option<[u64; 12]>,
    pub own: Option<OwnExecutor>,
}

impl SavedMove {
    pub fn of(
        port: &VirtualPort,
        moving: &Move,
        is_done: bool,
        switch_name: &impl Fn(usize) -> String,
    ) -> Self {
        let executor_name = |executor| match executor {
            Executor::Home => HOME.to_owned(),
            Executor::At(switch) => switch_name(switch),
        };
        Self {
            number: port.number,
            reached: match moving.stage {
                _ if is_done => Reached::Done,
                MoveStage::Preparing | MoveStage::Prepared => Reached::Old,
                MoveStage::Flipping | MoveStage::Flipped | MoveStage::Quiescing => Reached::New,
            },
            until: moving.until,
            settle: moving.settle,
            grace: moving.grace,
            name: port.name.clone(),
            switch: switch_name(moving.to.switch),
            interface: moving.to.interface.clone(),
            executor: match moving.executor {
                Executor::Home => None,
                Executor::At(switch) => Some(switch_name(switch)),
            },
            counted_before: moving
                .counted_before
                .clone()
                .map(|mut stats| counters(&mut stats).map(|counter| *counter)),
            own: Some(OwnExecutor {
                is_chosen: port.executor_chosen,
                gathered_from: port.gathered_from.map(executor_name),
                replaced: moving.replaced.map(executor_name),
            }),
        }
    }

    pub fn baseline(&self) -> Option<PortStats> {
        self.counted_before.map(|values| {
            let mut stats = PortStats::default();
            for (counter, value) in counters(&mut stats).into_iter().zip(values) {
                *counter = value;
            }
            stats
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.number.to_be_bytes());
        let reached = match self.reached {
            Reached::Old => 0,
            Reached::New => 1,
            Reached::Done => 2,
        };
        out.push(reached | if self.own.is_some() { HAS_OWN } else { 0 });
        out.push(match self.until {
            MoveUntil::Prepared => 0,
            MoveUntil::Flipped => 1,
            MoveUntil::Done => 2,
        });
        for time in [self.settle, self.grace] {
            let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            out.extend(nanos.to_be_bytes());
        }
        let executor = self.executor.as_deref().unwrap_or_default();
        for text in [&self.name, &self.switch, &self.interface, executor] {
            put_text(out, text);
        }
        out.push(self.counted_before.is_some().into());
        let baseline = self.counted_before.into_iter().flatten();
        baseline.for_each(|count| out.extend(count.to_be_bytes()));
        self.own.iter().for_each(|own| own.encode(out));
    }

    fn decode(input: &mut &[u8]) -> Option<Self> {
        let number = u32::from_be_bytes(array(input)?);
        let [reached, until] = array(input)?;
        let has_own = reached & HAS_OWN != 0;
        let reached = match reached & !HAS_OWN {
            0 => Reached::Old,
            1 => Reached::New,
            2 => Reached::Done,
            _ => return None,
        };
        let until = match until {
            0 => MoveUntil::Prepared,
            1 => MoveUntil::Flipped,
            2 => MoveUntil::Done,
            _ => return None,
        };
        let settle = Duration::from_nanos(u64::from_be_bytes(array(input)?));
        let grace = Duration::from_nanos(u64::from_be_bytes(array(input)?));
        let (name, switch, interface, executor) =
            (text(input)?, text(input)?, text(input)?, text(input)?);
        let [counted] = array(input)?;
        let mut baseline = [0; 12];
        if counted != 0 {
            for count in &mut baseline {
                *count = u64::from_be_bytes(array(input)?);
            }
        }
        let own = if has_own {
            Some(OwnExecutor::decode(input)?)
        } else {
            None
        };
        Some(Self {
            number,
            reached,
            until,
            settle,
            grace,
            name,
            switch,
            interface,
            executor: (!executor.is_empty()).then_some(executor),
            counted_before: (counted != 0).then_some(baseline),
            own,
        })
    }
}

pub fn encode(moves: &[SavedMove]) -> Vec<u8> {
    let mut out = Vec::new();
    moves.iter().for_each(|each| each.encode(&mut out));
    out
}

/// Encodes the moves of a server. Finished ones come first, in their order, so that a goal which another port has left is free.
pub fn of_server(server: &Server, switch_name: &impl Fn(usize) -> String) -> Vec<u8> {
    let save = |port: &VirtualPort, moving: &Move, is_done: bool| {
        SavedMove::of(port, moving, is_done, switch_name)
    };
    let mut done: Vec<_> = server
        .ports
        .iter()
        .filter_map(|port| Some((port.unsaved.as_ref()?, port)))
        .collect();
    done.sort_by_key(|((revision, _), _)| *revision);
    let done = done.into_iter();
    let done = done.map(|((_, moving), port)| save(port, moving, true));
    let under_way = server.ports.iter();
    let under_way = under_way.filter_map(|p| Some(save(p, p.moving.as_ref()?, false)));
    encode(&done.chain(under_way).collect::<Vec<_>>())
}

/// Decodes; `None`: not the format of [`encode`].
pub fn decode(mut bytes: &[u8]) -> Option<Vec<SavedMove>> {
    let input = &mut bytes;
    let mut moves = Vec::new();
    while !input.is_empty() {
        moves.push(SavedMove::decode(input)?);
    }
    Some(moves)
}

/// Names of a file, of interfaces and of switches.
fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u16).to_be_bytes());
    out.extend(text.as_bytes());
}

fn text(input: &mut &[u8]) -> Option<String> {
    let length = u16::from_be_bytes(array(input)?);
    let (text, rest) = input.split_at_checked(length.into())?;
    *input = rest;
    std::str::from_utf8(text).ok().map(Into::into)
}

/// Takes the next `N` bytes.
pub fn array<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*head)
}
