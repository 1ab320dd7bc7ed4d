use super::*;
use openflow13::{ActionList, Instructions, Match};
use proptest::prelude::*;

/// A rule of the naive model: table, priority, match, cookie, instructions.
type Entry = (u8, u16, CanonicalMatch, u64, Instructions);

fn flow_mod(command: FlowModCommand, cookie: u64, matching: Match, outputs: &[u32]) -> FlowMod {
    let mut actions = ActionList::new();
    for port in outputs {
        actions = match port {
            100.. => actions.group(*port),
            _ => actions.output(*port, 0),
        };
    }
    FlowMod {
        cookie,
        instructions: Instructions::apply(&actions),
        ..FlowMod::new(command, 0, 1, matching)
    }
}

fn apply(tables: &mut FlowTables, request: &FlowMod) -> Vec<Change> {
    let matching = request.matching.canonical().unwrap();
    let facts = Facts::of_instructions(&request.instructions);
    tables.apply(request, &matching, facts, Instant::now())
}

fn entries(tables: &FlowTables) -> Vec<Entry> {
    let mut entries: Vec<Entry> = tables
        .iter()
        .map(|r| {
            let key = r.key.clone();
            let instructions = r.instructions.clone();
            (
                key.table,
                key.priority,
                key.matching,
                r.cookie,
                instructions,
            )
        })
        .collect();
    entries.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
    entries
}

fn outputs_or_uses(instructions: &Instructions, port: u32, group: u32) -> bool {
    let (mut by_port, mut by_group) = (port == port_no::ANY, group == group_no::ANY);
    instructions.for_each_action(&mut |item| match item.action {
        openflow13::Action::Output { port: p, .. } => by_port |= p == port,
        openflow13::Action::Group(g) => by_group |= g == group,
        _ => {}
    });
    by_port && by_group
}

/// Applies OpenFlow 1.3.5, section 6.4, literally.
fn naive(entries: &mut Vec<Entry>, m: &FlowMod) {
    let key = m.matching.canonical().unwrap();
    let strict = matches!(
        m.command,
        FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict
    );
    let deletes = m.command.is_delete();
    let chosen = |e: &Entry| {
        let same = if strict {
            e.2 == key && e.1 == m.priority
        } else {
            key.covers(&e.2)
        };
        same && (m.table_id == ALL_TABLES || m.table_id == e.0)
            && (e.3 ^ m.cookie) & m.cookie_mask == 0
            && (!deletes || outputs_or_uses(&e.4, m.out_port, m.out_group))
    };
    match m.command {
        FlowModCommand::Add => {
            entries.retain(|e| (e.0, e.1, &e.2) != (m.table_id, m.priority, &key));
            entries.push((
                m.table_id,
                m.priority,
                key,
                m.cookie,
                m.instructions.clone(),
            ));
        }
        _ if deletes => entries.retain(|e| !chosen(e)),
        _ => entries
            .iter_mut()
            .filter(|e| chosen(e))
            .for_each(|e| e.4 = m.instructions.clone()),
    }
    entries.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
}

fn requests() -> impl Strategy<Value = FlowMod> {
    let commands = prop_oneof![
        4 => Just(FlowModCommand::Add),
        1 => Just(FlowModCommand::Modify),
        1 => Just(FlowModCommand::ModifyStrict),
        1 => Just(FlowModCommand::Delete),
        1 => Just(FlowModCommand::DeleteStrict),
    ];
    let matches = (0..3u32, 0..3u16).prop_map(|(port, vid)| {
        let matching = if port == 0 {
            Match::any()
        } else {
            Match::any().with_in_port(port)
        };
        if vid == 0 {
            matching
        } else {
            matching.with_vlan_vid(vid)
        }
    });
    let masks = prop_oneof![Just(0u64), Just(1), Just(u64::MAX)];
    let filters = (0..6u32, 0..6u32);
    (
        commands,
        0..4u64,
        matches,
        1..4u32,
        masks,
        filters,
        (0..2u8, 1..3u16),
    )
        .prop_map(
            |(command, cookie, matching, out, cookie_mask, (port, group), (table_id, priority))| {
                FlowMod {
                    cookie_mask,
                    table_id: if command == FlowModCommand::Delete && cookie == 3 {
                        ALL_TABLES
                    } else {
                        table_id
                    },
                    priority,
                    out_port: if (1..4).contains(&port) {
                        port
                    } else {
                        port_no::ANY
                    },
                    out_group: if group == 1 { 102 } else { group_no::ANY },
                    ..flow_mod(command, cookie, matching, &[out, 100 + out])
                }
            },
        )
}

proptest! {
    #[test]
    fn as_a_list_of_rules_and_undone_step_by_step(requests in proptest::collection::vec(requests(), 1..40)) {
        let (mut tables, mut model) = (FlowTables::default(), Vec::new());
        let mut history = Vec::new();
        for request in &requests {
            let before = entries(&tables);
            let changes = apply(&mut tables, request);
            history.push((before, changes));
            naive(&mut model, request);
            prop_assert_eq!(entries(&tables), model.clone());
            prop_assert_eq!(tables.len(), model.len());
            let mut afresh = FlowTables::default();
            tables.iter().for_each(|rule| drop(afresh.put(Arc::clone(rule))));
            prop_assert_eq!(tables.totals(), afresh.totals());
        }
        for (before, changes) in history.into_iter().rev() {
            tables.revert(changes);
            prop_assert_eq!(entries(&tables), before);
        }
        prop_assert_eq!((tables.len(), tables.in_port_movers()), (0, 0));
    }
}

#[test]
fn an_addition_keeps_counters_unless_told_to_reset_them() {
    let mut tables = FlowTables::default();
    let rule = flow_mod(FlowModCommand::Add, 1, Match::any(), &[1]);
    apply(&mut tables, &rule);
    let key = tables.iter().next().unwrap().key.clone();
    tables.fold(&key, 5, 50);
    apply(
        &mut tables,
        &FlowMod {
            cookie: 2,
            ..rule.clone()
        },
    );
    assert_eq!(tables.get(&key).unwrap().base.packets, 5);
    apply(
        &mut tables,
        &FlowMod {
            command: FlowModCommand::Modify,
            flags: FlowMod::RESET_COUNTS,
            ..rule.clone()
        },
    );
    assert_eq!(
        (
            tables.get(&key).unwrap().base.packets,
            tables.get(&key).unwrap().cookie
        ),
        (0, 2)
    );
    tables.fold(&key, 5, 50);
    apply(
        &mut tables,
        &FlowMod {
            flags: FlowMod::RESET_COUNTS,
            ..rule
        },
    );
    assert_eq!(tables.get(&key).unwrap().base.bytes, 0);
}

#[test]
fn overlaps_are_of_one_table_and_priority_and_of_other_rules() {
    let mut tables = FlowTables::default();
    apply(
        &mut tables,
        &flow_mod(FlowModCommand::Add, 1, Match::any().with_in_port(1), &[1]),
    );
    let key = |table, priority, matching: Match| RuleKey {
        table,
        priority,
        matching: matching.canonical().unwrap(),
    };
    let vid = || Match::any().with_vlan_vid(5);
    assert_eq!(tables.overlapping(&key(0, 1, vid())).count(), 1);
    assert_eq!(tables.overlapping(&key(0, 2, vid())).count(), 0);
    assert_eq!(tables.overlapping(&key(1, 1, vid())).count(), 0);
    assert_eq!(
        tables
            .overlapping(&key(0, 1, Match::any().with_in_port(2)))
            .count(),
        0
    );
    assert_eq!(
        tables
            .overlapping(&key(0, 1, Match::any().with_in_port(1)))
            .count(),
        0
    );
}

#[test]
fn what_is_kept_for_answers_under_way_is_bounded_and_given_back() {
    let ports: Vec<u32> = (1..99).cycle().take(3_900).collect();
    let mut tables = FlowTables::default();
    let mut rule = flow_mod(FlowModCommand::Add, 1, Match::any(), &ports);
    apply(&mut tables, &rule);
    let matching = rule.matching.canonical().unwrap();
    for _ in 0..2 {
        let before = rule.cookie;
        let time = tables.begin_reading();
        let size = size_of_rule(tables.iter().next().unwrap());
        for _ in 0..1_500 {
            rule.cookie += 1;
            tables.apply(&rule, &matching, Facts::default(), Instant::now());
        }
        let kept = tables.past.changes.len();
        assert!(
            (PAST / size / 2..=PAST / size + 1).contains(&kept),
            "{kept}"
        );
        let key = tables.iter().next().unwrap().key.clone();
        assert_eq!(
            tables
                .as_of(time)
                .find(&key, &mut Place::default())
                .unwrap()
                .cookie,
            before
        );
        tables.end_reading();
        assert_eq!((tables.past.changes.capacity(), tables.past.size), (0, 0));
    }
}

#[test]
fn each_reader_sees_its_own_time() {
    let mut tables = FlowTables::default();
    let mut rule = flow_mod(FlowModCommand::Add, 1, Match::any(), &[1]);
    apply(&mut tables, &rule);
    let key = tables.iter().next().unwrap().key.clone();
    let mut times = Vec::new();
    for cookie in 2..=5 {
        times.push((tables.begin_reading(), cookie - 1));
        rule.cookie = cookie;
        apply(&mut tables, &rule);
    }
    for (time, cookie) in &times {
        let seen = tables
            .as_of(*time)
            .find(&key, &mut Place::default())
            .unwrap()
            .cookie;
        assert_eq!(seen, *cookie);
    }
    times.iter().for_each(|_| tables.end_reading());
    // Times go on where nobody reads.
    let later = tables.begin_reading();
    assert!(times.iter().all(|(time, _)| *time < later));
    assert_eq!(
        tables
            .as_of(later)
            .find(&key, &mut Place::default())
            .unwrap()
            .cookie,
        5
    );
}

#[test]
fn a_rule_whose_cookie_changes_keeps_its_age_and_flags() {
    let mut tables = FlowTables::default();
    let rule = FlowMod {
        flags: FlowMod::RESET_COUNTS,
        ..flow_mod(FlowModCommand::Add, 1, Match::any(), &[1])
    };
    apply(&mut tables, &rule);
    let first = Rule::clone(tables.iter().next().unwrap());
    for (cookie_mask, is_kept) in [(CHANGED_COOKIE, true), (0, false)] {
        let changed = flow_mod(FlowModCommand::Add, 2, Match::any(), &[2]);
        apply(
            &mut tables,
            &FlowMod {
                cookie_mask,
                ..changed
            },
        );
        let rule = tables.get(&first.key).unwrap();
        assert_eq!(rule.cookie, 2);
        assert_eq!(
            (rule.created, rule.flags) == (first.created, first.flags),
            is_kept
        );
    }
}

#[test]
fn statistics_find_their_rules_whatever_the_spelling_and_the_order() {
    let mut tables = FlowTables::default();
    let tagged = |port: u32| Match::any().with_in_port(port).with_vlan_vid(7);
    let other_way = |port: u32| Match::any().with_vlan_vid(7).with_in_port(port);
    assert_ne!(tagged(1), other_way(1));
    for number in 0..40 {
        let table = (number % 2) as u8;
        let rule = flow_mod(FlowModCommand::Add, number.into(), tagged(number), &[1]);
        let rule = FlowMod {
            table_id: table,
            ..rule
        };
        apply(&mut tables, &rule);
    }
    let numbers = (0..40u32).chain((0..40).rev()).chain((0..40).step_by(9));
    let spellings: [fn(u32) -> Match; 2] = [tagged, other_way];
    for spelled in spellings {
        let mut place = Place::default();
        let tables = tables.as_of(0);
        let mut without_key = 0;
        for number in numbers.clone() {
            let flow = stats((number % 2) as u8, spelled(number));
            let matching = flow.matching.canonical().unwrap();
            let key = RuleKey::of_flow_mod(
                &FlowMod {
                    table_id: flow.table_id,
                    ..flow_mod(FlowModCommand::Add, 0, spelled(number), &[])
                },
                matching,
            );
            let next = tables.next(&flow, &mut place);
            without_key += usize::from(next.is_some());
            let rule = next.or_else(|| tables.find(&key, &mut place)).unwrap();
            assert_eq!(rule.cookie, u64::from(number));
        }
        assert_eq!(without_key > 0, spelled(1) == tagged(1));
    }
    let unknown = stats(0, tagged(1));
    let mut place = Place::default();
    assert!(tables.as_of(0).next(&unknown, &mut place).is_none());
    assert!(tables
        .as_of(0)
        .next(&stats(0, tagged(0)), &mut place)
        .is_some());
    let of_another_priority = FlowStats {
        priority: 2,
        ..stats(0, tagged(2))
    };
    assert!(tables
        .as_of(0)
        .next(&of_another_priority, &mut place)
        .is_none());
}

fn stats(table_id: u8, matching: Match) -> FlowStats {
    FlowStats {
        table_id,
        duration_sec: 0,
        duration_nsec: 0,
        priority: 1,
        idle_timeout: 0,
        hard_timeout: 0,
        flags: 0,
        importance: 0,
        idle_age: 0,
        cookie: 0,
        packet_count: 0,
        byte_count: 0,
        matching,
        instructions: Instructions::default(),
    }
}
