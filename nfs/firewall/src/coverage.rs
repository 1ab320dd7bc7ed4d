//! Finds rules that can never take a connection: their conditions contradict each other, or earlier rules take everything.
//!
//! The connections that a rule takes are boxes of seven dimensions. Earlier rules are cut out of them; a rule without a rest is dead. Different boxes
//! for the versions of IP say that both addresses of a connection have the same one.

use crate::{
    ranges::{ipv4, Ranges},
    rules::{Place, Rule, Rules},
};

const DIMENSIONS: usize = 7;
/// The most boxes of one rule's rest. Beyond it, the rule counts as alive.
const MOST: usize = 4096;

type Box = [Ranges; DIMENSIONS];

/// A dead rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    pub rule: usize,
    /// The rules that take everything before it. Empty: its own conditions contradict each other.
    pub by: Vec<usize>,
}

/// Finds all dead rules.
pub fn dead(rules: &Rules) -> Vec<Dead> {
    let boxes: Vec<Vec<Box>> = rules.rules.iter().map(boxes).collect();
    let mut dead = Vec::new();
    for (index, rule) in rules.rules.iter().enumerate() {
        let mut rest = boxes[index].clone();
        let mut by = Vec::new();
        for (earlier, other) in rules.rules[..index].iter().enumerate() {
            if rest.is_empty() || rest.len() > MOST {
                break;
            }
            if !other.application.covers(&rule.application) {
                continue;
            }
            let before = rest.clone();
            for cut in &boxes[earlier] {
                rest = rest.iter().flat_map(|whole| without(whole, cut)).collect();
            }
            if rest != before {
                by.push(earlier);
            }
        }
        if rest.is_empty() {
            dead.push(Dead { rule: index, by });
        }
    }
    dead
}

/// Returns the connections that a rule takes, whatever their application.
fn boxes(rule: &Rule) -> Vec<Box> {
    let families = [ipv4(), Ranges::all().without(&ipv4())];
    let mut boxes = Vec::new();
    for (from, to) in pairs(&rule.from, &rule.to) {
        for family in &families {
            let source = rule
                .source
                .intersection(&from.addresses)
                .intersection(family);
            let destination = rule
                .destination
                .intersection(&to.addresses)
                .intersection(family);
            let whole = [
                from.ports.clone(),
                to.ports.clone(),
                source,
                destination,
                rule.protocols.clone(),
                rule.source_ports.clone(),
                rule.ports.clone(),
            ];
            if !whole.iter().any(Ranges::is_empty) {
                boxes.push(whole);
            }
        }
    }
    boxes
}

fn pairs<'a>(from: &'a [Place], to: &'a [Place]) -> impl Iterator<Item = (&'a Place, &'a Place)> {
    from.iter()
        .flat_map(move |from| to.iter().map(move |to| (from, to)))
}

/// Returns the boxes that are left of one without another.
fn without(whole: &Box, cut: &Box) -> Vec<Box> {
    let common: Vec<Ranges> = whole
        .iter()
        .zip(cut)
        .map(|(one, two)| one.intersection(two))
        .collect();
    if common.iter().any(Ranges::is_empty) {
        return vec![whole.clone()];
    }
    let mut rests = Vec::new();
    let mut inner = whole.clone();
    for (dimension, common) in common.into_iter().enumerate() {
        let outside = inner[dimension].without(&cut[dimension]);
        if !outside.is_empty() {
            let mut rest = inner.clone();
            rest[dimension] = outside;
            rests.push(rest);
        }
        inner[dimension] = common;
    }
    rests
}
