//! Matches in a network card, by `ethtool -N`: a rule steers a flow into a queue, and a queue has the mark of its flows. If there are more marks than queues,
//! a queue stands for a group of them; while it has flows of several, its frames have no mark, and the function looks them up.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    sync::Arc,
};

use super::{
    marking::{is_past, moment, Progress},
    steered::QueueMarks,
};
use crate::{
    error::{system, PortError},
    interface::Interface,
    matching::{is_refusal, Match, Matcher, Moment},
    ntuple::{Rules, Size},
};

/// Returns the number of receive queues: one for all flows without a rule, and the others for groups of marks.
pub(super) fn queues(interface: &Interface, workers: usize) -> Result<u32, PortError> {
    let name = &interface.name;
    let unfit = |reason: String| PortError::Unfit {
        interface: name.clone(),
        reason,
    };
    if workers != 1 {
        return Err(unfit(format!(
            "rules of the card would take flows from their workers, and there are {workers}: --workers 1"
        )));
    }
    if interface.queues < 2 {
        return Err(unfit(format!(
            "it has one receive queue, and flows with a rule need others: ethtool -L {name} combined 8"
        )));
    }
    let rules = Rules::new(name).map_err(system(name, "cannot make a socket"))?;
    let spread = rules.spread().map_err(system(
        name,
        "its driver does not tell how it spreads flows over queues",
    ))?;
    if spread.iter().any(|queue| *queue != 0) {
        return Err(unfit(format!(
            "it spreads flows without a rule over several queues: ethtool -X {name} equal 1"
        )));
    }
    Ok(interface.queues)
}

/// The rules of a card.
pub(super) trait Steer: Send {
    fn size(&self) -> io::Result<Size>;
    fn insert(&self, flow: &Match, queue: u32, place: Option<u32>) -> io::Result<u32>;
    fn delete(&self, place: u32) -> io::Result<()>;
    fn flows(&self) -> io::Result<Vec<u32>>;
}

impl Steer for Rules {
    fn size(&self) -> io::Result<Size> {
        self.size()
    }

    fn insert(&self, flow: &Match, queue: u32, place: Option<u32>) -> io::Result<u32> {
        self.insert(flow, queue, place)
    }

    fn delete(&self, place: u32) -> io::Result<()> {
        self.delete(place)
    }

    fn flows(&self) -> io::Result<Vec<u32>> {
        self.flows()
    }
}

/// The flows of a queue.
#[derive(Default)]
struct Group {
    /// The number of flows with each mark.
    flows: BTreeMap<u32, usize>,
    mark: Option<u32>,
    /// The moment at which its last flow left: frames on their way may belong to it.
    left: Option<Moment>,
}

pub(super) struct Card<R = Rules> {
    rules: R,
    capacity: u32,
    /// Free places, where the driver does not choose them.
    places: Option<Vec<u32>>,
    /// The place and the mark of each flow. None: the driver may have chosen a place, and has not told which.
    flows: HashMap<Match, (Option<u32>, u32)>,
    groups: Vec<Group>,
    marks: Arc<QueueMarks>,
    rings: Vec<Progress>,
}

impl<R: Steer> Card<R> {
    /// # Errors
    /// If the driver has no such rules.
    pub(super) fn new(rules: R, marks: Arc<QueueMarks>, rings: Vec<Progress>) -> io::Result<Self> {
        let size = rules.size()?;
        Ok(Self {
            rules,
            capacity: size.most,
            places: (!size.has_any).then(|| (0..size.most).rev().collect()),
            flows: HashMap::new(),
            groups: (0..marks.len()).map(|_| Group::default()).collect(),
            marks,
            rings,
        })
    }

    fn group_of(&self, mark: u32) -> usize {
        mark as usize % self.groups.len()
    }

    /// Counts a flow of a queue that is about to get it, and sets the queue's mark.
    fn join(&mut self, mark: u32) {
        let at = self.group_of(mark);
        let was_left = self.groups[at].left.take();
        let is_new = self.groups[at].flows.is_empty();
        let has_old = was_left.is_some_and(|moment| !is_past(&self.rings, &moment));
        let group = &mut self.groups[at];
        group.mark = match group.mark {
            Some(other) if other == mark => Some(mark),
            _ if is_new && !has_old => Some(mark),
            _ => None,
        };
        *group.flows.entry(mark).or_default() += 1;
        self.marks.put(at, group.mark);
    }

    /// Deletes the rule at a place, if there is one.
    fn delete(&self, place: u32) -> io::Result<()> {
        match self.rules.delete(place) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            done => done,
        }
    }

    /// Deletes the rules whose places the driver has chosen without telling.
    fn delete_unknown(&self) -> io::Result<()> {
        let known: HashSet<u32> = self
            .flows
            .values()
            .filter_map(|(place, _)| *place)
            .collect();
        let places = self.rules.flows()?.into_iter();
        places
            .filter(|place| !known.contains(place))
            .try_for_each(|place| self.delete(place))
    }

    fn leave(&mut self, mark: u32) {
        let at = self.group_of(mark);
        let now = moment(&self.rings);
        let group = &mut self.groups[at];
        if let Some(count) = group.flows.get_mut(&mark) {
            *count -= 1;
            if *count == 0 {
                group.flows.remove(&mark);
            }
        }
        if group.flows.is_empty() {
            group.left = Some(now);
        }
    }
}

impl<R: Steer> Matcher for Card<R> {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn clear(&mut self) -> io::Result<()> {
        for place in self.rules.flows()? {
            self.rules.delete(place)?;
        }
        Ok(())
    }

    fn put(&mut self, flow: &Match, mark: u32) -> io::Result<()> {
        let place = match &mut self.places {
            None => None,
            Some(free) => {
                let full = || io::Error::from_raw_os_error(libc::ENOSPC);
                Some(free.pop().ok_or_else(full)?)
            }
        };
        self.join(mark);
        let queue = self.group_of(mark) as u32 + 1;
        match self.rules.insert(flow, queue, place) {
            Ok(at) => {
                self.flows.insert(*flow, (Some(at), mark));
                Ok(())
            }
            Err(error) if !is_refusal(&error) => {
                self.flows.insert(*flow, (place, mark));
                Err(error)
            }
            Err(error) => {
                self.leave(mark);
                self.places.iter_mut().for_each(|free| free.extend(place));
                Err(error)
            }
        }
    }

    fn remove(&mut self, flow: &Match) -> io::Result<()> {
        let Some((place, mark)) = self.flows.get(flow).copied() else {
            return Ok(());
        };
        match place {
            Some(place) => self.delete(place)?,
            None => self.delete_unknown()?,
        }
        self.flows.remove(flow);
        self.leave(mark);
        self.places.iter_mut().for_each(|free| free.extend(place));
        Ok(())
    }

    fn wait(&mut self) -> io::Result<Moment> {
        // A driver returns when the card has taken the change.
        Ok(moment(&self.rings))
    }

    fn is_past(&self, moment: &Moment) -> bool {
        is_past(&self.rings, moment)
    }
}

#[cfg(test)]
mod tests;
