//! The bundles that a controller fills: what Open vSwitch keeps of them until their commit (ofproto/bundles.c).

use openflow13::bundle::Control;
use openflow13::ErrorCode;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a bundle may stay unused (Open vSwitch's `bundle-idle-timeout`).
const IDLE: Duration = Duration::from_secs(10);
/// Limit of the bytes in the bundles of one controller. (Open vSwitch has none.)
const BYTES: usize = 64 << 20;

/// A message in a bundle.
#[derive(Debug)]
pub struct Part {
    /// Numbers the parts of all bundles of a connection in order.
    number: u64,
    /// The message that added it, in OpenFlow 1.3.
    pub frame: Box<[u8]>,
    /// The message that the controller sent, in another version.
    sent: Option<Box<[u8]>>,
}

impl Part {
    /// Returns the message as the controller sent it, for errors.
    pub fn sent(&self) -> &[u8] {
        self.sent.as_ref().unwrap_or(&self.frame)
    }

    fn size(&self) -> usize {
        self.frame.len() + self.sent.as_ref().map_or(0, |sent| sent.len())
    }
}

#[derive(Debug)]
pub struct Bundle {
    flags: u16,
    is_closed: bool,
    used: Instant,
    /// The message that opened it, for the error after a timeout.
    opener: Box<[u8]>,
    /// Whether it was opened by adding its first part.
    is_implicit: bool,
    pub parts: Vec<Part>,
    /// This batch settles which of the parts the switches can read.
    pub checked: u64,
}

#[derive(Debug, Default)]
pub struct Bundles {
    open: BTreeMap<u32, Bundle>,
    parts: u64,
    bytes: usize,
}

impl Bundles {
    /// # Errors
    /// `BAD_ID`: it is open already, and gone now.
    pub fn open(&mut self, control: Control, opener: &[u8], now: Instant) -> Result<(), ErrorCode> {
        if self.remove(control.bundle_id).is_some() {
            return Err(ErrorCode::ONF_BUNDLE_BAD_ID);
        }
        let bundle = Bundle::new(control.flags, opener, now);
        self.open.insert(control.bundle_id, bundle);
        Ok(())
    }

    /// # Errors
    /// `BAD_ID`; `CLOSED`, `BAD_FLAGS`: the bundle is gone.
    pub fn close(&mut self, control: Control, now: Instant) -> Result<(), ErrorCode> {
        let bundle = self.usable(control.bundle_id, control.flags)?;
        let bundle = bundle.ok_or(ErrorCode::ONF_BUNDLE_BAD_ID)?;
        bundle.used = now;
        bundle.is_closed = true;
        Ok(())
    }

    /// # Errors
    /// `BAD_ID`.
    pub fn discard(&mut self, id: u32) -> Result<(), ErrorCode> {
        let removed = self.remove(id);
        removed.map(drop).ok_or(ErrorCode::ONF_BUNDLE_BAD_ID)
    }

    /// Adds the message inside `frame`, opening the bundle if need be; returns the number of the part. The batch `checked` decides whether
    /// it stays.
    ///
    /// # Errors
    /// `CLOSED`, `BAD_FLAGS`: the bundle is gone; `MSG_TOO_MANY`.
    pub fn add(
        &mut self,
        (id, flags): (u32, u16),
        frame: &[u8],
        sent: Option<&[u8]>,
        checked: u64,
        now: Instant,
    ) -> Result<u64, ErrorCode> {
        let part = Part {
            number: self.parts + 1,
            frame: frame.into(),
            sent: sent.map(Into::into),
        };
        let size = part.size();
        if self.bytes + size > BYTES {
            return Err(ErrorCode::ONF_BUNDLE_MSG_TOO_MANY);
        }
        self.usable(id, flags)?;
        let bundle = self.open.entry(id).or_insert_with(|| Bundle {
            is_implicit: true,
            ..Bundle::new(flags, part.sent(), now)
        });
        self.parts += 1;
        self.bytes += size;
        bundle.used = now;
        bundle.checked = checked;
        bundle.parts.push(part);
        Ok(self.parts)
    }

    /// Removes a part that the switches cannot read.
    pub fn strike(&mut self, number: u64) {
        let found = self.open.iter_mut().find_map(|(id, bundle)| {
            let parts = &bundle.parts;
            let at = parts.binary_search_by_key(&number, |part| part.number);
            at.ok().map(|at| (*id, bundle.parts.remove(at)))
        });
        let Some((id, part)) = found else { return };
        self.bytes -= part.size();
        let is_unopened = |b: &Bundle| b.is_implicit && b.parts.is_empty();
        if self.open.get(&id).is_some_and(is_unopened) {
            self.open.remove(&id);
        }
    }

    /// Returns the batch that settles whether a bundle without an opening request is open; `None`: it had such a request, or is not open.
    pub fn implicitly_opened_by(&self, id: u32) -> Option<u64> {
        let bundle = self.open.get(&id).filter(|bundle| bundle.is_implicit)?;
        Some(bundle.checked)
    }

    /// Returns a bundle that is to be committed.
    ///
    /// # Errors
    /// `BAD_ID`; `BAD_FLAGS`: the bundle is gone.
    pub fn committable(&mut self, control: Control) -> Result<&Bundle, ErrorCode> {
        let id = control.bundle_id;
        let flags = self.open.get(&id).map(|bundle| bundle.flags);
        if flags.is_some_and(|flags| flags != control.flags) {
            self.remove(id);
            return Err(ErrorCode::ONF_BUNDLE_BAD_FLAGS);
        }
        self.open.get(&id).ok_or(ErrorCode::ONF_BUNDLE_BAD_ID)
    }

    pub fn remove(&mut self, id: u32) -> Option<Bundle> {
        let bundle = self.open.remove(&id)?;
        let sizes = bundle.parts.iter().map(Part::size);
        self.bytes -= sizes.sum::<usize>();
        Some(bundle)
    }

    /// Returns when the next bundle times out.
    pub fn deadline(&self) -> Option<Instant> {
        self.open.values().map(|bundle| bundle.used + IDLE).min()
    }

    /// Gives the bundles the time back for which messages were held, and as long again for those that still wait in the daemon. A short hold
    /// changes little: otherwise bundles would never time out while others commit theirs.
    pub fn extend(&mut self, held: Duration, now: Instant) {
        for bundle in self.open.values_mut() {
            bundle.used = (bundle.used + 2 * held).min(now);
        }
    }

    /// Removes the bundles that have timed out; returns the messages that opened them.
    pub fn timed_out(&mut self, now: Instant) -> Vec<Box<[u8]>> {
        let is_due = |bundle: &Bundle| bundle.used + IDLE <= now;
        let due = self.open.iter().filter(|(_, bundle)| is_due(bundle));
        let due: Vec<u32> = due.map(|(id, _)| *id).collect();
        let removed = due.into_iter().filter_map(|id| self.remove(id));
        removed.map(|bundle| bundle.opener).collect()
    }

    /// Returns a bundle that still takes parts; removes one that does not.
    fn usable(&mut self, id: u32, flags: u16) -> Result<Option<&mut Bundle>, ErrorCode> {
        let error = match self.open.get(&id) {
            Some(bundle) if bundle.is_closed => ErrorCode::ONF_BUNDLE_CLOSED,
            Some(bundle) if bundle.flags != flags => ErrorCode::ONF_BUNDLE_BAD_FLAGS,
            _ => return Ok(self.open.get_mut(&id)),
        };
        self.remove(id);
        Err(error)
    }
}

impl Bundle {
    fn new(flags: u16, opener: &[u8], now: Instant) -> Self {
        Self {
            flags,
            is_closed: false,
            used: now,
            opener: opener.into(),
            is_implicit: false,
            parts: Vec::new(),
            checked: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow13::bundle::{ControlType, ATOMIC, ORDERED};

    fn control(flags: u16) -> Control {
        Control {
            bundle_id: 1,
            control_type: ControlType::OpenRequest,
            flags,
        }
    }

    #[test]
    fn a_struck_part_is_gone_and_an_unopened_bundle_with_its_last_one() {
        let (mut bundles, now) = (Bundles::default(), Instant::now());
        let first = bundles.add((1, ATOMIC), &[1; 100], None, 1, now).unwrap();
        let second = bundles.add((1, ATOMIC), &[2; 100], None, 1, now).unwrap();
        bundles.strike(first);
        let left = &bundles.committable(control(ATOMIC)).unwrap().parts;
        assert_eq!(*left[0].frame, [2; 100]);
        bundles.strike(second);
        let gone = bundles.committable(control(ATOMIC)).unwrap_err();
        assert_eq!((gone, bundles.bytes), (ErrorCode::ONF_BUNDLE_BAD_ID, 0));
        bundles.open(control(ATOMIC), &[], now).unwrap();
        let only = bundles.add((1, ATOMIC), &[1; 100], None, 1, now).unwrap();
        bundles.strike(only);
        assert!(bundles.committable(control(ATOMIC)).is_ok());
    }

    #[test]
    fn other_flags_end_a_bundle_and_free_its_bytes() {
        let (mut bundles, now) = (Bundles::default(), Instant::now());
        bundles.add((1, ATOMIC), &[1; 100], None, 1, now).unwrap();
        let refused = bundles.add((1, ORDERED), &[1; 100], None, 1, now);
        assert_eq!(refused, Err(ErrorCode::ONF_BUNDLE_BAD_FLAGS));
        assert_eq!((bundles.bytes, bundles.deadline()), (0, None));
    }

    #[test]
    fn parts_beyond_the_limit_are_refused_and_the_bundle_stays() {
        let (mut bundles, now) = (Bundles::default(), Instant::now());
        let half = vec![0; BYTES / 2 + 1];
        bundles.add((1, ATOMIC), &half, None, 1, now).unwrap();
        let refused = bundles.add((1, ATOMIC), &half, None, 1, now);
        assert_eq!(refused, Err(ErrorCode::ONF_BUNDLE_MSG_TOO_MANY));
        assert_eq!(bundles.committable(control(ATOMIC)).unwrap().parts.len(), 1);
    }

    #[test]
    fn only_unused_bundles_time_out() {
        let (mut bundles, now) = (Bundles::default(), Instant::now());
        bundles.open(control(ATOMIC), b"opener", now).unwrap();
        let later = now + IDLE / 2;
        bundles.add((1, ATOMIC), &[1; 100], None, 1, later).unwrap();
        assert!(bundles.timed_out(now + IDLE).is_empty());
        assert_eq!(bundles.deadline(), Some(later + IDLE));
        assert_eq!(*bundles.timed_out(later + IDLE)[0], *b"opener");
        assert_eq!(bundles.deadline(), None);
    }
}
