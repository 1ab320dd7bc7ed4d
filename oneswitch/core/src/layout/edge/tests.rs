use super::*;
use crate::server::ports::{Executor, Move};
use crate::MoveStage;
use openflow13::Action;

const PATCH: u32 = 100;
const PCIE: u32 = 50;

fn number_of(name: &str) -> Option<u32> {
    let after = |prefix: &str| {
        name.strip_prefix(prefix)
            .and_then(|n| n.parse::<u32>().ok())
    };
    after("edge-")
        .map(|n| PATCH + n)
        .or_else(|| after("if"))
        .or_else(|| after("pcie-snic").map(|n| PCIE + 1 + n))
        .or_else(|| (name == "pf0hpf").then_some(PCIE))
}

fn location(switch: SwitchIndex, interface: u32) -> Location {
    Location {
        switch,
        interface: format!("if{interface}"),
    }
}

/// Port N on interface N of the N-th of `homes`.
fn map(homes: &[SwitchIndex]) -> PortMap {
    let mut map = PortMap::default();
    for (number, home) in (1..).zip(homes) {
        let name = format!("p{number}");
        map.insert(
            Some(number),
            name,
            location(*home, number),
            "s",
            Executor::Home,
        )
        .unwrap();
    }
    map
}

fn moving(map: &mut PortMap, number: u32, to: Location, stage: MoveStage) {
    let port = map.get_mut(number).unwrap();
    let goal = Move::new(to, port.executor, crate::MoveUntil::Done);
    port.moving = Some(Move { stage, ..goal });
}

fn rules(switches: usize, switch: SwitchIndex, ports: &PortMap) -> EdgeRules {
    let links: Vec<_> = (0..switches)
        .map(|n| {
            (n > 0).then(|| LinkConfig {
                hypervisor: format!("pcie-snic{}", n - 1),
                local: "pf0hpf".into(),
            })
        })
        .collect();
    let flood = Flood::new(ports);
    let number_of = |name: &str| number_of(name);
    EdgeInput {
        switch,
        links: &links,
        ports,
        flood: &flood,
        offload: &Offload::default(),
        number_of: &number_of,
    }
    .rules()
}

/// Follows a packet with flow-id `id` that arrives by a PCIe port: whether the tag is popped, and where it goes.
fn arrival(rules: &EdgeRules, pcie: u32, id: u16) -> Option<(bool, Vec<u32>)> {
    let matching = Match::any().with_in_port(pcie).with_vlan_vid(id);
    let rule = rules.get(&(0, matching.canonical().unwrap()))?;
    let mut found = (false, Vec::new());
    for item in rule.actions.as_actions() {
        match item.action {
            Action::PopVlan => found.0 = true,
            Action::Output { port, .. } => found.1.push(port),
            other => panic!("{other:?}"),
        }
    }
    Some(found)
}

/// Ports that a packet from `in_port` leaves by, and the tag it gets.
fn departure(rules: &EdgeRules, in_port: u32) -> Vec<(Option<u16>, Vec<u32>)> {
    let from = |rule: &&EdgeRule| rule.matching.in_port() == Some(in_port);
    let mut found = Vec::new();
    for rule in rules.values().filter(from) {
        let mut one = (None, Vec::new());
        for item in rule.actions.as_actions() {
            match item.action {
                Action::Output { port, .. } => one.1.push(port),
                Action::SetField(field) if field.value.len() == 2 => {
                    one.0 = Some(u16::from_be_bytes(field.value.try_into().unwrap()) & 0xfff);
                }
                _ => {}
            }
        }
        if !one.1.is_empty() && !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

#[test]
fn one_switch_has_no_tags() {
    let rules = rules(1, 0, &map(&[0, 0]));
    for port in 1..=2 {
        assert_eq!(departure(&rules, port), [(None, vec![PATCH + port])]);
        assert_eq!(departure(&rules, PATCH + port), [(None, vec![port])]);
    }
    assert_eq!(rules.len(), 4);
}

#[test]
fn a_remote_port_is_reached_by_its_flow_id() {
    let ports = map(&[0, 1]);
    let (hub, snic) = (rules(2, 0, &ports), rules(2, 1, &ports));
    assert_eq!(departure(&hub, PATCH + 2), [(Some(2), vec![PCIE + 1])]);
    assert_eq!(departure(&snic, PATCH + 1), [(Some(1), vec![PCIE])]);
    assert_eq!(arrival(&snic, PCIE, 2), Some((true, vec![2])));
    assert_eq!(arrival(&hub, PCIE + 1, 1), Some((true, vec![1])));
    assert_eq!(
        departure(&snic, 1),
        [],
        "the interface is on the other switch"
    );
}

#[test]
fn between_snics_the_hypervisor_passes_packets_on_and_never_back() {
    let ports = map(&[1, 2]);
    let hub = rules(3, 0, &ports);
    assert_eq!(arrival(&hub, PCIE + 1, 2), Some((false, vec![PCIE + 2])));
    assert_eq!(arrival(&hub, PCIE + 2, 1), Some((false, vec![PCIE + 1])));
    assert_eq!(arrival(&hub, PCIE + 1, 1), None);
    assert_eq!(arrival(&rules(3, 1, &ports), PCIE, 2), None);
}

#[test]
fn a_moving_port_is_delivered_to_its_old_interface_until_it_flips() {
    let mut ports = map(&[0, 1]);
    for (stage, home) in [(MoveStage::Prepared, true), (MoveStage::Flipping, false)] {
        moving(&mut ports, 2, location(2, 7), stage);
        let [hub, old, new] = [0, 1, 2].map(|s| rules(3, s, &ports));
        let toward = if home { PCIE + 1 } else { PCIE + 2 };
        assert_eq!(departure(&hub, PATCH + 2), [(Some(2), vec![toward])]);
        // Packets from one of the two homes to the other are on their way.
        assert_eq!(arrival(&hub, PCIE + 1, 2), Some((false, vec![PCIE + 2])));
        assert_eq!(arrival(&hub, PCIE + 2, 2), Some((false, vec![PCIE + 1])));
        assert_eq!(arrival(&old, PCIE, 2), Some((true, vec![2])));
        assert_eq!(arrival(&new, PCIE, 2), Some((true, vec![7])));
        assert_eq!(departure(&old, 2), [(None, vec![PATCH + 2])]);
        assert_eq!(departure(&new, 7), [(None, vec![PATCH + 2])]);
    }
}

#[test]
fn a_port_that_moves_within_a_switch_is_delivered_to_where_it_is() {
    let mut ports = map(&[0, 1]);
    for (stage, interface) in [(MoveStage::Prepared, 2), (MoveStage::Flipping, 7)] {
        moving(&mut ports, 2, location(1, 7), stage);
        let snic = rules(2, 1, &ports);
        assert_eq!(departure(&snic, PATCH + 2), [(None, vec![interface])]);
        assert_eq!(arrival(&snic, PCIE, 2), Some((true, vec![interface])));
    }
}

fn executed_at(map: &mut PortMap, number: u32, switch: SwitchIndex) {
    map.allocate_ingress(number).unwrap();
    map.get_mut(number).unwrap().executor = Executor::At(switch);
}

/// Follows a packet with INGRESS flow-id `id` that arrives by a PCIe port: where it goes, and whether it is parsed again before.
fn execution(rules: &EdgeRules, pcie: u32, id: u16) -> Option<(bool, Vec<u32>)> {
    let matching = Match::any().with_in_port(pcie).with_vlan_vid(id);
    let rule = rules.get(&(0, matching.canonical().unwrap()))?;
    let (mut kinds, mut outputs) = (Vec::new(), Vec::new());
    for item in rule.actions.as_actions() {
        match item.action {
            Action::PopVlan => kinds.push(0),
            Action::Nicira { subtype, .. } => kinds.push(subtype),
            Action::Output { port, .. } => outputs.push(port),
            other => panic!("{other:?}"),
        }
    }
    assert!(kinds.is_empty() || kinds == [0, 46, 47], "{kinds:?}");
    Some((!kinds.is_empty(), outputs))
}

#[test]
fn what_enters_at_a_port_goes_to_its_executor_and_is_parsed_anew_there() {
    let mut ports = map(&[1, 0]);
    executed_at(&mut ports, 1, 2);
    let [hub, home, executor] = [0, 1, 2].map(|s| rules(3, s, &ports));
    assert_eq!(departure(&home, 1), [(Some(3), vec![PCIE])]);
    assert_eq!(execution(&hub, PCIE + 1, 3), Some((false, vec![PCIE + 2])));
    assert_eq!(execution(&hub, PCIE + 2, 3), None);
    assert_eq!(execution(&executor, PCIE, 3), Some((true, vec![PATCH + 1])));
    assert_eq!(execution(&home, PCIE, 3), None);
    // Packets from its pipeline to it come back by the DELIVER flow-id.
    assert_eq!(departure(&executor, PATCH + 1), [(Some(1), vec![PCIE])]);
    assert_eq!(departure(&hub, 2), [(None, vec![PATCH + 2])]);
}

#[test]
fn a_port_that_executes_at_home_by_choice_needs_no_tag() {
    let mut ports = map(&[1, 0]);
    executed_at(&mut ports, 1, 1);
    let [hub, home] = [0, 1].map(|s| rules(2, s, &ports));
    assert_eq!(departure(&home, 1), [(None, vec![PATCH + 1])]);
    assert_eq!(execution(&hub, PCIE + 1, 3), None);
    assert_eq!(execution(&home, PCIE, 3), None);
}

#[test]
fn while_the_executor_changes_both_take_packets() {
    // (home, old, new, the hypervisor's way for what comes from the home: before, after)
    for (home, old, new, before, after) in [
        (1, 1, 0, PATCH + 1, PATCH + 1),
        (1, 0, 2, PATCH + 1, PCIE + 2),
        (1, 2, 0, PCIE + 2, PATCH + 1),
        (1, 1, 2, PCIE + 2, PCIE + 2),
        (1, 2, 1, PCIE + 2, PCIE + 2),
    ] {
        for (stage, executor, way) in [
            (MoveStage::Prepared, old, before),
            (MoveStage::Flipping, new, after),
        ] {
            let mut ports = map(&[home]);
            executed_at(&mut ports, 1, old);
            moving(&mut ports, 1, location(home, 1), stage);
            let moving = ports.get_mut(1).unwrap().moving.as_mut();
            moving.unwrap().executor = Executor::At(new);
            let ways = [0, 1, 2].map(|s| rules(3, s, &ports));
            let here = match executor == home {
                true => (None, vec![PATCH + 1]),
                false => (Some(2), vec![PCIE]),
            };
            assert_eq!(departure(&ways[home], 1), [here]);
            let passed = (way >= PATCH, vec![way]);
            assert_eq!(execution(&ways[0], PCIE + 1, 2), Some(passed));
            for snic in [old, new].into_iter().filter(|s| *s == 2) {
                let taken = execution(&ways[snic], PCIE, 2);
                assert_eq!(taken, Some((true, vec![PATCH + 1])));
            }
        }
    }
}
