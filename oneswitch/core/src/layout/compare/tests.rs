use super::*;
use crate::model::facts::Facts;
use crate::model::hidden::HiddenGroups;
use openflow13::{port_no, ActionList, FlowModCommand, Instructions, Match};

const SECOND: Duration = Duration::from_secs(1);

fn rule(change: impl FnOnce(&mut FlowMod)) -> Rule {
    let mut request = FlowMod {
        cookie: 7,
        instructions: Instructions::apply(&ActionList::new().output(2, 0)),
        ..FlowMod::new(FlowModCommand::Add, 2, 9, Match::any().with_in_port(1))
    };
    change(&mut request);
    let key = RuleKey::of_flow_mod(&request, request.matching.canonical().unwrap());
    let facts = Facts::of_instructions(&request.instructions);
    Rule::new(key, &request, facts, Instant::now())
}

/// Returns a switch's report of a copy.
fn reported(copy: &FlowMod) -> FlowStats {
    FlowStats {
        table_id: copy.table_id,
        duration_sec: 0,
        duration_nsec: 0,
        priority: copy.priority,
        idle_timeout: copy.idle_timeout,
        hard_timeout: copy.hard_timeout,
        flags: copy.flags,
        importance: 0,
        idle_age: 0,
        cookie: copy.cookie,
        packet_count: 0,
        byte_count: 0,
        matching: copy.matching.clone(),
        instructions: copy.instructions.clone(),
    }
}

#[test]
fn a_hard_timeout_is_over_for_a_copy_that_is_there_after_a_grace() {
    let rule = rule(|r| (r.hard_timeout, r.idle_timeout) = (10, 20));
    let over = |there, seconds: f64| {
        let now = rule.modified + Duration::from_secs_f64(seconds);
        time_over(
            &rule,
            &copy_of(&rule, 1, &HiddenGroups::default(), now),
            there,
            false,
            now,
        )
    };
    let hard = Some(FlowRemoved::HARD_TIMEOUT);
    assert_eq!((over(false, 9.999), over(false, 10.0)), (None, hard));
    assert_eq!((over(true, 11.999), over(true, 12.0)), (None, hard));
}

#[test]
fn an_idle_timeout_is_over_where_only_that_copy_is_gone() {
    let rule = rule(|r| r.idle_timeout = 10);
    let over = |copies, there, lost_everything, seconds| {
        let now = rule.modified + seconds * SECOND;
        time_over(
            &rule,
            &copy_of(&rule, copies, &HiddenGroups::default(), now),
            there,
            lost_everything,
            now,
        )
    };
    let idle = Some(FlowRemoved::IDLE_TIMEOUT);
    assert_eq!(
        (over(1, false, false, 9), over(1, false, false, 10)),
        (None, idle)
    );
    assert_eq!(over(1, true, false, 100), None);
    assert_eq!(over(1, false, true, 100), None);
    // Of several copies none has a timer.
    assert_eq!(over(2, false, false, 100), None);
    let never = self::rule(|_| ());
    let now = never.modified + 1000 * SECOND;
    assert_eq!(
        time_over(
            &never,
            &copy_of(&never, 1, &HiddenGroups::default(), now),
            false,
            false,
            now
        ),
        None
    );
}

/// Every way in which a report can differ from the copy, and whether it is one that matters.
fn differences(copy: &FlowMod) -> Vec<(FlowStats, &'static str)> {
    let other = Instructions::apply(&ActionList::new().output(3, 0));
    let mut all = vec![reported(copy); 5];
    all[0].cookie = 8;
    all[1].flags ^= FlowMod::SEND_FLOW_REM;
    all[2].idle_timeout ^= 1;
    all[3].hard_timeout = if copy.hard_timeout == 0 { 5 } else { 0 };
    all[4].instructions = other;
    all.into_iter()
        .zip(["cookie", "flags", "idle", "hard", "instructions"])
        .collect()
}

#[test]
fn a_copy_is_told_from_others_by_all_that_it_has() {
    for (idle, hard, copies) in [(0, 0, 1), (9, 0, 1), (9, 0, 2), (0, 9, 1), (9, 9, 2)] {
        let rule = rule(|r| (r.idle_timeout, r.hard_timeout) = (idle, hard));
        let copy = copy_of(
            &rule,
            copies,
            &HiddenGroups::default(),
            rule.modified + 3 * SECOND,
        );
        let there = reported(&copy);
        assert_eq!(there.idle_timeout, if copies > 1 { 0 } else { idle });
        assert!(is_copy(&there, &copy));
        assert_eq!(is_plain_copy(&there, &rule, copies), hard == 0);
        // Flags of the message only, which a switch may show.
        let shown = FlowStats {
            flags: there.flags | MESSAGE_FLAGS,
            ..there.clone()
        };
        assert!(is_copy(&shown, &copy));
        assert_eq!(is_plain_copy(&shown, &rule, copies), hard == 0);
        for (there, what) in differences(&copy) {
            assert!(!is_copy(&there, &copy), "{what}");
            assert!(!is_plain_copy(&there, &rule, copies), "{what}");
            let same_but = is_copy_but_for_instructions(&there, &copy);
            assert_eq!(same_but, what == "instructions", "{what}");
        }
        // The time that is left counts down at the switch.
        if hard > 0 {
            let later = FlowStats {
                hard_timeout: 1,
                ..there
            };
            assert!(is_copy(&later, &copy));
        }
    }
}

#[test]
fn a_rule_that_floods_needs_a_second_look() {
    let floods = Instructions::apply(&ActionList::new().output(port_no::FLOOD, 0));
    let rule = rule(|r| r.instructions = floods);
    let copy = copy_of(&rule, 1, &HiddenGroups::default(), rule.modified);
    assert!(is_copy(&reported(&copy), &copy));
    assert!(!is_plain_copy(&reported(&copy), &rule, 1));
    let as_written = FlowStats {
        instructions: rule.instructions.clone(),
        ..reported(&copy)
    };
    assert!(!is_plain_copy(&as_written, &rule, 1));
}

#[test]
fn a_later_copy_lacks_the_flags_of_the_message() {
    let flags = MESSAGE_FLAGS | FlowMod::NO_PKT_COUNTS;
    let rule = rule(|r| (r.flags, r.hard_timeout) = (flags, 9));
    assert_eq!(rule.flags, flags);
    let copy = copy_of(&rule, 1, &HiddenGroups::default(), rule.modified);
    assert_eq!(copy.flags, FlowMod::NO_PKT_COUNTS | FlowMod::SEND_FLOW_REM);
}

#[test]
fn a_new_copy_has_what_is_left_of_the_hard_timeout() {
    let rule = rule(|r| r.hard_timeout = 10);
    for (passed, left) in [
        (0.0, 10),
        (0.9, 10),
        (1.0, 9),
        (9.0, 1),
        (10.0, 1),
        (1000.0, 1),
    ] {
        let now = rule.modified + Duration::from_secs_f64(passed);
        assert_eq!(rule.hard_timeout_left(now), left, "{passed}");
    }
    let never = self::rule(|_| ());
    assert_eq!(never.hard_timeout_left(never.modified + SECOND), 0);
}
