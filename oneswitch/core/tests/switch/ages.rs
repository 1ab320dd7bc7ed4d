//! Ages of rules, which come over connections of their own.

use crate::build::{add, any, output};
use crate::lab::Lab;
use openflow13::{openflow10, Message};
use std::time::Duration;

const OLD: u64 = 10;
const PATIENCE: Duration = Duration::from_millis(500);

/// Asks for the statistics of all rules in Nicira's form.
fn ask(lab: &mut Lab) {
    let mut request = vec![1, openflow10::kind::STATS_REQUEST, 0, 32, 0, 0, 0, 7];
    request.extend([0xff, 0xff, 0, 0, 0, 0, 0x23, 0x20, 0, 0, 0, 0, 0, 0, 0, 0]);
    request.extend([0xff, 0xff, 0, 0, 0xff, 0, 0, 0]);
    lab.send_raw(OLD, &request);
    while lab.round() {}
}

/// The age of the only rule, in seconds and 1, if there is a reply.
fn told(lab: &mut Lab) -> Option<[u8; 2]> {
    let replies = lab.take_raw(OLD);
    let reply = replies
        .iter()
        .find(|reply| reply[1] == openflow10::kind::STATS_REPLY)?;
    Some([reply[44], reply[45]])
}

/// A rule that is 3 s old.
fn lab() -> Lab {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &Message::FlowMod(add(1, any(), &output(1))));
    lab.wait(Duration::from_secs(3));
    assert!(!lab.core.wants_version10());
    lab.controller_of_version(OLD, openflow10::VERSION);
    assert!(lab.core.wants_version10());
    lab
}

#[test]
fn statistics_wait_a_moment_for_ages() {
    let mut lab = lab();
    ask(&mut lab);
    assert_eq!(told(&mut lab), None);
    assert_eq!(lab.core.next_deadline(), Some(lab.now + PATIENCE));
    lab.now += PATIENCE;
    lab.core.tick(lab.now);
    lab.run();
    assert_eq!(
        told(&mut lab),
        Some([0, 4]),
        "the age of a rule without packets"
    );
}

#[test]
fn a_connection_that_ends_is_not_waited_for() {
    let mut lab = lab();
    for switch in [0, 1] {
        lab.core.version10_up(switch, lab.now);
    }
    ask(&mut lab);
    lab.core.version10_down(0, lab.now);
    while lab.round() {}
    assert_eq!(told(&mut lab), None);
    lab.core.version10_down(1, lab.now);
    lab.run();
    assert!(told(&mut lab).is_some());
}
