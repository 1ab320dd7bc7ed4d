use std::sync::{
    atomic::{AtomicBool, Ordering::Relaxed},
    Mutex,
};

use super::*;

/// A card with this many places.
struct Fake {
    most: u32,
    /// The driver chooses places.
    has_any: bool,
    /// The card does what it is asked, and the answer is lost.
    is_mute: Arc<AtomicBool>,
    rules: Arc<Mutex<BTreeMap<u32, (Match, u32)>>>,
}

impl Steer for Fake {
    fn size(&self) -> io::Result<Size> {
        Ok(Size {
            rules: self.rules.lock().unwrap().len() as u32,
            most: self.most,
            has_any: self.has_any,
        })
    }

    fn insert(&self, flow: &Match, queue: u32, place: Option<u32>) -> io::Result<u32> {
        let mut rules = self.rules.lock().unwrap();
        let free = || (0..self.most).find(|place| !rules.contains_key(place));
        let place = place.or_else(free).unwrap();
        if flow.protocol != 6 {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        assert_eq!(rules.insert(place, (*flow, queue)), None);
        match self.is_mute.load(Relaxed) {
            true => Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            false => Ok(place),
        }
    }

    fn delete(&self, place: u32) -> io::Result<()> {
        let gone = self.rules.lock().unwrap().remove(&place);
        gone.map(drop)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }

    fn flows(&self) -> io::Result<Vec<u32>> {
        Ok(self.rules.lock().unwrap().keys().copied().collect())
    }
}

fn flow(port: u16) -> Match {
    Match {
        source: [0; 16],
        destination: [1; 16],
        source_port: port,
        destination_port: 80,
        protocol: 6,
    }
}

type Written = Arc<Mutex<BTreeMap<u32, (Match, u32)>>>;

fn card(most: u32) -> (Card<Fake>, Arc<QueueMarks>, Written) {
    let rules = Written::default();
    let marks = Arc::new(QueueMarks::new(3));
    let fake = Fake {
        most,
        has_any: false,
        is_mute: Arc::default(),
        rules: Arc::clone(&rules),
    };
    let card = Card::new(fake, Arc::clone(&marks), Vec::new()).unwrap();
    (card, marks, rules)
}

#[test]
fn a_queue_has_the_mark_of_its_flows_and_none_while_they_differ() {
    let (mut card, marks, rules) = card(8);
    card.put(&flow(1), 4).unwrap();
    card.put(&flow(2), 4).unwrap();
    card.put(&flow(3), 5).unwrap();
    assert_eq!((marks.get(0), marks.get(1)), (Some(4), Some(5)));
    let queues: Vec<u32> = rules
        .lock()
        .unwrap()
        .values()
        .map(|(_, queue)| *queue)
        .collect();
    assert_eq!(queues, [1, 1, 2]);
    // Mark 6 shares the queue of mark 4.
    card.put(&flow(4), 6).unwrap();
    assert_eq!(marks.get(0), None);
    card.remove(&flow(4)).unwrap();
    assert_eq!(marks.get(0), None, "frames of mark 6 may be in the queue");
    card.remove(&flow(1)).unwrap();
    card.remove(&flow(2)).unwrap();
    card.put(&flow(4), 6).unwrap();
    assert_eq!(marks.get(0), Some(6));
}

#[test]
fn a_full_card_and_an_unsupported_flow_are_refused_and_places_come_back() {
    let (mut card, _marks, rules) = card(2);
    let other = Match {
        protocol: 17,
        ..flow(9)
    };
    for _ in 0..4 {
        let refused = card.put(&other, 1).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP));
    }
    card.put(&flow(1), 1).unwrap();
    card.put(&flow(2), 2).unwrap();
    let refused = card.put(&flow(3), 1).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC));
    card.remove(&flow(1)).unwrap();
    card.remove(&flow(1)).unwrap();
    card.put(&flow(3), 1).unwrap();
    assert_eq!(rules.lock().unwrap().len(), 2);
    card.clear().unwrap();
    assert!(rules.lock().unwrap().is_empty());
    card.remove(&flow(3)).unwrap();
    assert!(card.wait().is_ok_and(|moment| card.is_past(&moment)));
}

#[test]
fn a_match_whose_answer_is_lost_is_removed_wherever_the_card_has_put_it() {
    for has_any in [false, true] {
        let (rules, is_mute) = (Written::default(), Arc::new(AtomicBool::new(false)));
        let marks = Arc::new(QueueMarks::new(3));
        let fake = Fake {
            most: 2,
            has_any,
            is_mute: Arc::clone(&is_mute),
            rules: Arc::clone(&rules),
        };
        let mut card = Card::new(fake, Arc::clone(&marks), Vec::new()).unwrap();
        card.put(&flow(1), 1).unwrap();
        is_mute.store(true, Relaxed);
        let lost = card.put(&flow(2), 2).unwrap_err();
        assert!(!is_refusal(&lost));
        is_mute.store(false, Relaxed);
        card.remove(&flow(2)).unwrap();
        let left: Vec<Match> = rules.lock().unwrap().values().map(|rule| rule.0).collect();
        assert_eq!(left, [flow(1)]);
        card.put(&flow(3), 3).unwrap();
    }
}
