//! A network card whose calls fail now and then, and whose marks outlive their matches for a while.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::{
        atomic::{AtomicU32, Ordering::Relaxed},
        Arc, Mutex, MutexGuard,
    },
};

use nf_flow_director::{FlowDirector, Worker};
use nf_offload::{CounterId, Driver, FlowKey, Refused, Table, TargetId, Unavailable, Writer};
use nf_ports::{Match, Matcher, Moment};

use crate::model::Model;

#[derive(Debug, Default)]
struct Card {
    capacity: usize,
    matches: HashMap<Match, u32>,
    /// Removed matches, whose marks frames may carry that arrived before this number of waits.
    fading: Vec<(Match, u32, u32)>,
    waits: u32,
    /// Frames that arrived before this number of waits were processed.
    past: u32,
    /// The error of the next call.
    fails: Option<i32>,
    /// The next call does its work, and its answer is lost.
    is_mute: bool,
}

/// The card, and the table that works at it in each `PACE`th turn.
pub struct Nic<const FLOWS: usize, const PACE: u32> {
    card: Arc<Mutex<Card>>,
    director: Mutex<FlowDirector>,
    worker: Mutex<Worker>,
    turns: AtomicU32,
}

impl Card {
    /// Ends a call that has done its work.
    fn answer<R>(&mut self, result: R) -> io::Result<R> {
        match std::mem::take(&mut self.is_mute) {
            true => Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            false => Ok(result),
        }
    }
}

#[derive(Clone)]
struct Port(Arc<Mutex<Card>>);

impl Port {
    /// Returns the card after a call that succeeds.
    fn call(&self) -> io::Result<MutexGuard<'_, Card>> {
        let mut card = self.0.lock().unwrap();
        match card.fails.take() {
            Some(error) => Err(io::Error::from_raw_os_error(error)),
            None => Ok(card),
        }
    }
}

impl Matcher for Port {
    fn capacity(&self) -> u32 {
        self.0.lock().unwrap().capacity as u32
    }

    fn clear(&mut self) -> io::Result<()> {
        let mut card = self.call()?;
        let waits = card.waits;
        let all = std::mem::take(&mut card.matches);
        card.fading
            .extend(all.into_iter().map(|(flow, mark)| (flow, mark, waits)));
        card.answer(())
    }

    fn put(&mut self, flow: &Match, mark: u32) -> io::Result<()> {
        let mut card = self.call()?;
        if card.matches.len() >= card.capacity {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        assert_eq!(
            card.matches.insert(*flow, mark),
            None,
            "two matches of a flow"
        );
        card.answer(())
    }

    fn remove(&mut self, flow: &Match) -> io::Result<()> {
        let mut card = self.call()?;
        if let Some(mark) = card.matches.remove(flow) {
            let waits = card.waits;
            card.fading.push((*flow, mark, waits));
        }
        card.answer(())
    }

    fn wait(&mut self) -> io::Result<Moment> {
        let mut card = self.call()?;
        card.waits += 1;
        let moment = Moment(vec![card.waits]);
        card.answer(moment)
    }

    fn is_past(&self, moment: &Moment) -> bool {
        self.0.lock().unwrap().past >= moment.0[0]
    }
}

impl<const FLOWS: usize, const PACE: u32> Default for Nic<FLOWS, PACE> {
    fn default() -> Self {
        let card = Arc::new(Mutex::new(Card {
            capacity: FLOWS,
            ..Card::default()
        }));
        let (director, worker) = FlowDirector::new(Box::new(Port(Arc::clone(&card))));
        Self {
            card,
            director: Mutex::new(director),
            worker: Mutex::new(worker),
            turns: AtomicU32::new(0),
        }
    }
}

impl<const FLOWS: usize, const PACE: u32> std::fmt::Debug for Nic<FLOWS, PACE> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.card.fmt(f)
    }
}

impl<const FLOWS: usize, const PACE: u32> Nic<FLOWS, PACE> {
    fn card(&self) -> MutexGuard<'_, Card> {
        self.card.lock().unwrap()
    }

    fn turn(&self) {
        if (self.turns.fetch_add(1, Relaxed) + 1) % PACE == 0 {
            self.turn_now();
        }
    }

    fn turn_now(&self) {
        self.worker.lock().unwrap().turn();
    }
}

impl<const FLOWS: usize, const PACE: u32> Table for Nic<FLOWS, PACE> {
    fn open(&mut self, writer: Writer, _: usize) -> Result<Box<dyn Driver + Send>, Unavailable> {
        self.director.lock().unwrap().open(writer, 0)
    }
}

impl<const FLOWS: usize, const PACE: u32> Model for Nic<FLOWS, PACE> {
    type Handle = Box<dyn Driver + Send>;

    const FLOWS: usize = FLOWS;
    const COUNTS: bool = false;
    const ROUNDS: u32 = 200 * PACE;

    fn writer(&self, instance: u128, epoch: u64) -> Self::Handle {
        let mut director = self.director.lock().unwrap();
        director.open(Writer { instance, epoch }, 0).unwrap()
    }

    fn carry(&self, flow: FlowKey, fades_too: bool) -> Option<TargetId> {
        let card = self.card();
        let flow = match_of(&flow);
        let mut fading = card
            .fading
            .iter()
            .filter(|(other, ..)| fades_too && *other == flow);
        let mark = card.matches.get(&flow).copied();
        mark.or_else(|| fading.next().map(|(_, mark, _)| *mark))
            .map(TargetId)
    }

    fn work(&self, refuses: Option<Refused>) {
        self.card().fails = refuses.map(|why| match why {
            Refused::Full => libc::ENOSPC,
            Refused::Collision => libc::EEXIST,
            Refused::Rate => libc::EBUSY,
            _ => libc::EOPNOTSUPP,
        });
        self.turn();
        self.card().fails = None;
    }

    fn settle(&self) {
        // Removals wait for the card, then for the frames, and are told then.
        self.turn();
        {
            let card = &mut *self.card();
            card.past = card.waits;
            card.fading.retain(|(.., waits)| *waits >= card.past);
        }
        self.turn();
    }

    fn lose_answer(&self) {
        self.card().is_mute = true;
    }

    fn count(&self) {}

    fn totals(&self) -> BTreeMap<CounterId, u64> {
        BTreeMap::new()
    }

    fn lose_totals(&self) {}

    fn reset(&self) {
        // The card is gone, and with it its matches; then it comes back.
        self.card().matches.clear();
        self.card().fails = Some(libc::ENODEV);
        self.turn_now();
        self.card().fails = None;
    }

    fn acting(&self) -> Vec<(FlowKey, TargetId)> {
        let card = self.card();
        let present = card.matches.iter();
        let fading = card.fading.iter().map(|(flow, mark, _)| (flow, mark));
        present
            .chain(fading)
            .map(|(flow, mark)| (key_of(flow), TargetId(*mark)))
            .collect()
    }

    fn is_empty(&self) -> bool {
        self.acting().is_empty()
    }
}

fn match_of(flow: &FlowKey) -> Match {
    Match {
        source: flow.source,
        destination: flow.destination,
        source_port: flow.source_port,
        destination_port: flow.destination_port,
        protocol: flow.protocol as u8,
    }
}

fn key_of(flow: &Match) -> FlowKey {
    FlowKey {
        source: flow.source,
        destination: flow.destination,
        source_port: flow.source_port,
        destination_port: flow.destination_port,
        protocol: flow.protocol.into(),
    }
}
