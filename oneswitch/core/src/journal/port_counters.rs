//! The counters of ports that only OpenFlow 1.4 has, in the journal: what to add to those of their interfaces.

use crate::journal::moves::array;
use crate::server::ports::VirtualPort;
use crate::server::Server;
use openflow13::{IntelPortStats, PortStats};

/// Such counters of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCounters {
    number: u32,
    name: String,
    base: Option<IntelPortStats>,
    /// Those of the interface to which it moves, from before the move.
    counted_before: Option<IntelPortStats>,
}

impl SavedCounters {
    /// `None`: the port has no such counters.
    fn of(port: &VirtualPort) -> Option<Self> {
        let intel = |stats: &PortStats| stats.intel.as_deref().cloned();
        let moving = port.moving.as_ref();
        let saved = Self {
            number: port.number,
            name: port.name.clone(),
            base: intel(&port.base),
            counted_before: moving.and_then(|m| intel(m.counted_before.as_ref()?)),
        };
        (saved.base.is_some() || saved.counted_before.is_some()).then_some(saved)
    }

    /// Restores them, unless another port has got the number.
    pub fn restore(self, server: &mut Server) {
        let port = server.ports.get_mut(self.number);
        let Some(port) = port.filter(|port| port.name == self.name) else {
            return;
        };
        port.base.intel = self.base.map(Box::new);
        let moving = port.moving.as_mut();
        if let Some(before) = moving.and_then(|moving| moving.counted_before.as_mut()) {
            before.intel = self.counted_before.map(Box::new);
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.number.to_be_bytes());
        put_text(out, self.name.as_bytes());
        put_counters(out, self.base.as_ref());
        put_counters(out, self.counted_before.as_ref());
    }

    fn decode(input: &mut &[u8]) -> Option<Self> {
        Some(Self {
            number: u32::from_be_bytes(array(input)?),
            name: std::str::from_utf8(text(input)?).ok()?.into(),
            base: counters(input)?,
            counted_before: counters(input)?,
        })
    }
}

pub fn of_server(server: &Server) -> Vec<u8> {
    let mut out = Vec::new();
    let saved = server.ports.iter().filter_map(SavedCounters::of);
    saved.for_each(|saved| saved.encode(&mut out));
    out
}

/// Decodes; `None`: not the format of [`of_server`].
pub fn decode(mut bytes: &[u8]) -> Option<Vec<SavedCounters>> {
    let input = &mut bytes;
    let mut saved = Vec::new();
    while !input.is_empty() {
        saved.push(SavedCounters::decode(input)?);
    }
    Some(saved)
}

/// Writes a name, which has at most 255 bytes.
fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(text.len() as u8);
    out.extend(text);
}

fn text<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let [length] = array(input)?;
    let (text, rest) = input.split_at_checked(length.into())?;
    *input = rest;
    Some(text)
}

fn put_counters(out: &mut Vec<u8>, counters: Option<&IntelPortStats>) {
    out.push(counters.is_some().into());
    let Some(counters) = counters else {
        return;
    };
    for count in counters.rfc2819 {
        out.extend(count.to_be_bytes());
    }
    out.extend((counters.custom.len() as u16).to_be_bytes()); // fits into a message
    for (name, count) in &counters.custom {
        put_text(out, name);
        out.extend(count.to_be_bytes());
    }
}

fn counters(input: &mut &[u8]) -> Option<Option<IntelPortStats>> {
    let [exist] = array(input)?;
    if exist == 0 {
        return Some(None);
    }
    let mut counters = IntelPortStats::default();
    for count in &mut counters.rfc2819 {
        *count = u64::from_be_bytes(array(input)?);
    }
    for _ in 0..u16::from_be_bytes(array(input)?) {
        let name = text(input)?.into();
        let count = u64::from_be_bytes(array(input)?);
        counters.custom.push((name, count));
    }
    Some(Some(counters))
}
