//! The log's lines about refusals that a single Open vSwitch would not make.

use crate::build::{add, any, group, output, packet_out};
use crate::lab::Lab;
use oneswitch_core::Bridge;
use openflow13::{encode, port_no, GroupModCommand, Message};
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps the text of events of a level and of those above it.
#[derive(Clone)]
struct Lines(Level, Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.0
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.1.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn logged(level: Level, act: impl FnOnce()) -> Vec<String> {
    let kept = Lines(level, Arc::default());
    tracing::subscriber::with_default(kept.clone(), act);
    let lines = kept.1.lock().unwrap();
    lines.clone()
}

fn warnings(lab: &mut Lab, message: &Message) -> Vec<String> {
    logged(Level::WARN, || {
        lab.ask(7, message);
    })
}

#[test]
fn a_refusal_for_several_executors_says_what_to_set() {
    let mut lab = Lab::new(2, &[0, 1]);
    let normal = output(port_no::NORMAL);
    for (what, message) in [
        ("a rule", Message::FlowMod(add(1, any(), &normal))),
        (
            "a group",
            group(GroupModCommand::Add, 5, &[port_no::NORMAL]),
        ),
        ("a packet-out", packet_out(1, normal.clone())),
    ] {
        let lines = warnings(&mut lab, &message);
        assert_eq!(lines.len(), 1, "{lines:?}");
        for words in [
            "controller=1",
            &format!("refuses {what} with NORMAL"),
            "several executors (hypervisor, snic0)",
            "set executor = \"hypervisor\" in [oneswitchd]",
            "unoctl port execute",
        ] {
            assert!(lines[0].contains(words), "{words}: {lines:?}");
        }
    }
    assert_eq!(
        warnings(
            &mut Lab::new(1, &[0]),
            &Message::FlowMod(add(1, any(), &normal))
        ),
        [""; 0]
    );
}

#[test]
fn a_refused_packet_out_is_logged() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.disconnect(1);
    lab.run();
    let lines = warnings(&mut lab, &packet_out(2, output(1)));
    assert!(
        lines.len() == 1 && lines[0].contains("in_port=2 switch=snic0 "),
        "{lines:?}"
    );
}

#[test]
fn only_messages_that_switches_send_unasked_are_ignored() {
    let ignored = |lines: Vec<String>| lines.iter().filter(|l| l.contains("ignored")).count();
    let paths_are_written = || {
        let mut lab = Lab::new(2, &[0, 1]);
        assert!(!lab.edge(1).flows.is_empty(), "a bundle has written them");
    };
    assert_eq!(ignored(logged(Level::DEBUG, paths_are_written)), 0);
    let mut lab = Lab::new(2, &[0, 1]);
    let request = encode(1, &Message::BarrierRequest).unwrap();
    let unasked = || {
        lab.core.switch_message(1, Bridge::Edge, &request, lab.now);
    };
    assert_eq!(ignored(logged(Level::DEBUG, unasked)), 1);
}
