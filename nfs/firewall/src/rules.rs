//! The rules as they are evaluated: for each new connection, from the first on.

use crate::{
    application::{Condition, Known},
    config::{Action, Rate, Undecided},
    ranges::Ranges,
};

/// The beginning of a connection, as far as rules look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The ports by which its packets come, and leave.
    pub ingress: usize,
    pub egress: usize,
    pub source: u128,
    pub destination: u128,
    pub protocol: u8,
    /// Zero without ports.
    pub source_port: u16,
    pub destination_port: u16,
}

/// A station's place: it is in one of these zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Indices of the instance's ports.
    pub ports: Ranges,
    pub addresses: Ranges,
}

/// A rule. The place of each side is one of several.
#[derive(Clone, Debug)]
pub struct Rule {
    pub name: String,
    pub from: Vec<Place>,
    pub to: Vec<Place>,
    pub source: Ranges,
    pub destination: Ranges,
    pub protocols: Ranges,
    pub source_ports: Ranges,
    pub ports: Ranges,
    pub application: Condition,
    pub action: Action,
    pub log: bool,
    pub rate: Option<Rate>,
    pub undecided: Undecided,
}

/// All rules, in order.
#[derive(Clone, Debug)]
pub struct Rules {
    pub rules: Vec<Rule>,
    pub default: Action,
}

/// The result of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The action of a rule by its index. None: no rule took the connection.
    Taken(Option<usize>, Action),
    /// This rule depends on the application, which is not known.
    Depends(usize),
}

impl Rule {
    /// Tells whether all conditions but those on the application hold.
    pub fn takes(&self, opening: &Opening) -> bool {
        self.protocols.contains(opening.protocol.into())
            && self.ports.contains(opening.destination_port.into())
            && self.source_ports.contains(opening.source_port.into())
            && self.source.contains(opening.source)
            && self.destination.contains(opening.destination)
            && at(&self.from, opening.ingress, opening.source)
            && at(&self.to, opening.egress, opening.destination)
    }
}

fn at(places: &[Place], port: usize, address: u128) -> bool {
    let is_in =
        |place: &Place| place.ports.contains(port as u128) && place.addresses.contains(address);
    places.iter().any(is_in)
}

impl Rules {
    /// Finds the first rule that takes a connection. `known`: its application, if that is known.
    pub fn choose(&self, opening: &Opening, known: Option<&Known>) -> Choice {
        for (index, rule) in self.rules.iter().enumerate() {
            if !rule.takes(opening) {
                continue;
            }
            if rule.application.is_none() {
                return Choice::Taken(Some(index), rule.action);
            }
            match known {
                None => return Choice::Depends(index),
                Some(known) if rule.application.holds(known) => {
                    return Choice::Taken(Some(index), rule.action);
                }
                Some(_) => {}
            }
        }
        Choice::Taken(None, self.default)
    }
}
