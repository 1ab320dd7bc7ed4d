//! A load balancer's side of the engines: it gives each operation to the engine of its flow, within that engine's credits, and takes the completions.

use std::collections::VecDeque;

use nf_arena::Memory;
use nf_tables::Key;

use crate::table::Shape;

use super::{
    corrupt::Corrupt,
    operation::{
        read_outcome, sequence_of, write_operation, Operation, Outcome, Record, MOST_WORDS,
        SEQUENCES,
    },
    queues::SmuxEnd,
};

/// A refusal: the engine has as many operations in progress as it has credits. Submit the operation again after `poll`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCredit;

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed<K, T> {
    /// The caller's tag from `submit`. None: an event of the engine, [`Outcome::Evicted`].
    pub tag: Option<T>,
    pub engine: u32,
    pub outcome: Outcome<K>,
}

/// The operations of one load balancer. `T` tags them.
pub struct Offloader<K, M, T> {
    shape: Shape,
    channels: Vec<Channel<K, M, T>>,
    /// Completions that belong to no operation.
    strays: u64,
}

struct Channel<K, M, T> {
    end: SmuxEnd<K, M>,
    /// Tags of operations in progress, the oldest first.
    waiting: VecDeque<T>,
    /// The sequence number of the oldest one.
    oldest: u64,
}

impl<K: Key, M: Memory, T> Offloader<K, M, T> {
    /// Makes the side with the ends of the engines' queues, in the order of the engines.
    #[must_use]
    pub fn new(shape: Shape, ends: Vec<SmuxEnd<K, M>>) -> Self {
        let channels = ends.into_iter().map(|end| Channel {
            waiting: VecDeque::with_capacity(end.credits),
            end,
            oldest: 0,
        });
        Self {
            shape,
            channels: channels.collect(),
            strays: 0,
        }
    }

    #[must_use]
    pub fn engines(&self) -> u32 {
        self.channels.len() as u32
    }

    /// Returns the number of operations in progress at an engine.
    #[must_use]
    pub fn in_progress(&self, engine: u32) -> usize {
        let channel = self.channels.get(engine as usize);
        channel.map_or(0, |channel| channel.waiting.len())
    }

    /// Returns the number of completions that belonged to no operation.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Gives an operation to the engine of its flow. The removal of a server goes to engine 0; see [`submit_to`](Self::submit_to).
    ///
    /// # Errors
    /// The tag, if the engine has no credit left.
    pub fn submit(&mut self, operation: Operation<K>, tag: T) -> Result<(), (NoCredit, T)> {
        let engine = match &operation {
            Operation::Insert { key, .. } | Operation::Delete { key } => {
                self.shape.engine_of(key, self.engines())
            }
            Operation::DeleteServer { .. } => 0,
        };
        self.submit_to(engine, operation, tag)
    }

    /// Gives an operation to an engine: the removal of a server must be given to each.
    ///
    /// # Errors
    /// The tag, if the engine has no credit left, or does not exist.
    pub fn submit_to(
        &mut self,
        engine: u32,
        operation: Operation<K>,
        tag: T,
    ) -> Result<(), (NoCredit, T)> {
        let Some(channel) = self.channels.get_mut(engine as usize) else {
            return Err((NoCredit, tag));
        };
        let has_credit = channel.waiting.len() < channel.end.credits
            && channel.end.operations.room(1).is_ok_and(|room| room > 0);
        if !has_credit {
            return Err((NoCredit, tag));
        }
        let sequence = (channel.oldest + channel.waiting.len() as u64) % SEQUENCES;
        channel
            .end
            .operations
            .push(&write_operation(&operation, sequence));
        channel.waiting.push_back(tag);
        Ok(())
    }

    /// Takes all completions that have come. An operation whose completion is missing, because a later one has come, is [`Outcome::Lost`].
    ///
    /// # Errors
    /// If an engine damaged its queue. Operations in progress there are lost; take their tags by [`abandon`](Self::abandon).
    pub fn poll(&mut self, each: &mut dyn FnMut(Completed<K, T>)) -> Result<usize, Corrupt> {
        let mut taken = 0;
        for (engine, channel) in self.channels.iter_mut().enumerate() {
            let waiting = channel.end.completions.waiting()?;
            for ahead in 0..waiting {
                let mut record: Record = [0; MOST_WORDS];
                channel.end.completions.peek(ahead, &mut record);
                self.strays += channel.complete(engine as u32, &record, each);
            }
            if waiting > 0 {
                channel.end.completions.consume(waiting);
                taken += waiting;
            }
        }
        Ok(taken)
    }

    /// Gives up the operations in progress at an engine that failed: passes their tags, the oldest first.
    pub fn abandon(&mut self, engine: u32, each: &mut dyn FnMut(T)) {
        if let Some(channel) = self.channels.get_mut(engine as usize) {
            channel.oldest += channel.waiting.len() as u64;
            channel.waiting.drain(..).for_each(each);
        }
    }

    /// Replaces the queues of an engine that was started again. Its operations in progress must have been abandoned.
    pub fn replace(&mut self, engine: u32, end: SmuxEnd<K, M>) {
        if let Some(channel) = self.channels.get_mut(engine as usize) {
            channel.end = end;
        }
    }
}

impl<K: Key, M, T> Channel<K, M, T> {
    /// Passes a completion; returns 1 if it belongs to no operation.
    #[inline]
    fn complete(
        &mut self,
        engine: u32,
        record: &Record,
        each: &mut dyn FnMut(Completed<K, T>),
    ) -> u64 {
        let outcome = read_outcome(record);
        if let Some(Outcome::Evicted(_)) = outcome {
            let tag = None;
            each(Completed {
                tag,
                engine,
                outcome: outcome.unwrap_or(Outcome::Lost),
            });
            return 0;
        }
        let ahead = sequence_of(record).wrapping_sub(self.oldest) % SEQUENCES;
        if ahead >= self.waiting.len() as u64 {
            return 1;
        }
        let mut pass = |channel: &mut Self, outcome| {
            let tag = channel.waiting.pop_front();
            channel.oldest += 1;
            each(Completed {
                tag,
                engine,
                outcome,
            });
        };
        for _ in 0..ahead {
            pass(self, Outcome::Lost);
        }
        pass(self, outcome.unwrap_or(Outcome::Lost));
        0
    }
}
