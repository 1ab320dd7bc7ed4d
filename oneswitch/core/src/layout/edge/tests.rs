use super::*;
use crate::server::ports::{Executor, Move};
use crate::{LinkKind, MoveStage};
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
    rules_over(&vec![LinkKind::Probed; switches - 1], switch, ports)
}

/// The rules of a switch, with an sNIC at each of these links.
fn rules_over(kinds: &[LinkKind], switch: SwitchIndex, ports: &PortMap) -> EdgeRules {
    let link = |(n, kind): (usize, &LinkKind)| LinkConfig {
        hypervisor: format!("pcie-snic{n}"),
        local: "pf0hpf".into(),
        kind: *kind,
    };
    let snics = kinds.iter().enumerate().map(link).map(Some);
    let links: Vec<_> = std::iter::once(None).chain(snics).collect();
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

/// The rule for packets with a flow-id from a PCIe port.
fn arriving(rules: &EdgeRules, carrier: Carrier, pcie: u32, id: FlowId) -> Option<&EdgeRule> {
    let (from, oxm) = (pcie, &carrier.fields(id));
    let matching = Packets { from, oxm }.matching().unwrap();
    rules.get(&(0, matching.canonical().unwrap()))
}

/// Follows a packet with flow-id `id` that arrives by a PCIe port: whether the tag is popped, and where it goes.
fn arrival(rules: &EdgeRules, pcie: u32, id: FlowId) -> Option<(bool, Vec<u32>)> {
    let rule = arriving(rules, Carrier::Tag, pcie, id)?;
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
    leaving(rules, |rule| {
        rule.matching.in_port() == Some(in_port) && priority(&rule.matching) == PRIORITY
    })
}

/// The same for a marker.
fn marker_departure(rules: &EdgeRules, in_port: u32) -> Vec<(Option<u16>, Vec<u32>)> {
    leaving(rules, |rule| {
        rule.matching.in_port() == Some(in_port) && priority(&rule.matching) == MARKERS_PRIORITY
    })
}

fn leaving(rules: &EdgeRules, is_it: impl Fn(&EdgeRule) -> bool) -> Vec<(Option<u16>, Vec<u32>)> {
    let from = |rule: &&EdgeRule| is_it(rule);
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

#[test]
fn markers_go_from_the_old_interface_to_the_new_one_until_the_move_is_done() {
    // (from, to, the tag that a marker gets, and the port by which it leaves)
    for (old, new, way) in [
        (0, 1, (Some(1), vec![PCIE + 1])),
        (1, 0, (Some(1), vec![PCIE])),
        (1, 2, (Some(1), vec![PCIE])),
        (1, 1, (None, vec![7])),
    ] {
        let mut ports = map(&[old, 0]);
        assert_eq!(marker_departure(&rules(3, old, &ports), 1), []);
        for stage in [MoveStage::Prepared, MoveStage::Flipping] {
            moving(&mut ports, 1, location(new, 7), stage);
            let ways = [0, 1, 2].map(|s| rules(3, s, &ports));
            assert_eq!(marker_departure(&ways[old], 1), std::slice::from_ref(&way));
            assert_eq!(departure(&ways[old], 1), [(None, vec![PATCH + 1])]);
            let others = [0, 1, 2].into_iter().filter(|s| *s != old);
            assert!(others
                .into_iter()
                .all(|s| marker_departure(&ways[s], 1).is_empty()));
            let last = match (old, new) {
                (_, 0) => arrival(&ways[0], PCIE + 1, 1),
                (1, 1) => Some((true, vec![7])),
                _ => arrival(&ways[new], PCIE, 1),
            };
            assert_eq!(last, Some((true, vec![7])));
            if (old, new) == (1, 2) {
                assert_eq!(
                    arrival(&ways[0], PCIE + 1, 1),
                    Some((false, vec![PCIE + 2]))
                );
            }
        }
    }
}

#[test]
fn a_change_of_the_executor_needs_no_markers() {
    let mut ports = map(&[1]);
    moving(&mut ports, 1, location(1, 1), MoveStage::Prepared);
    assert_eq!(marker_departure(&rules(2, 1, &ports), 1), []);
}

fn executed_at(map: &mut PortMap, number: u32, switch: SwitchIndex) {
    map.allocate_ingress(number).unwrap();
    map.get_mut(number).unwrap().executor = Executor::At(switch);
}

/// Follows a packet with INGRESS flow-id `id` that arrives by a PCIe port: where it goes, and whether it is parsed again before.
fn execution(rules: &EdgeRules, pcie: u32, id: FlowId) -> Option<(bool, Vec<u32>)> {
    let rule = arriving(rules, Carrier::Tag, pcie, id)?;
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

/// What happens to packets, one word for each action.
fn told(rule: &EdgeRule) -> Vec<String> {
    let actions = rule.actions.as_actions();
    let word = |action: Action<'_>| match action {
        Action::PushVlan(_) => "push".into(),
        Action::PopVlan => "pop".into(),
        Action::SetField(field) if field.value.len() == 2 => "vid".into(),
        Action::SetField(field) if (field.class, field.field) == (0x8000, 38) => {
            format!("id {}", u64::from_be_bytes(field.value.try_into().unwrap()))
        }
        Action::SetField(_) => "register".into(),
        Action::Nicira { subtype, .. } => format!("nicira {subtype}"),
        Action::Output { port, .. } => format!("to {port}"),
        other => panic!("{other:?}"),
    };
    actions.iter().map(|item| word(item.action)).collect()
}

/// What happens to packets from a port, by every rule.
fn from_port(rules: &EdgeRules, in_port: u32) -> Vec<Vec<String>> {
    let from = |rule: &&EdgeRule| rule.matching.in_port() == Some(in_port);
    rules.values().filter(from).map(told).collect()
}

#[test]
fn a_pcie_link_carries_the_id_beside_the_packet() {
    let kinds = [LinkKind::Pcie];
    let mut ports = map(&[0, 1]);
    executed_at(&mut ports, 1, 1);
    let [hub, snic] = [0, 1].map(|s| rules_over(&kinds, s, &ports));
    // No detour for packets with tags: the id adds none.
    assert_eq!(from_port(&hub, PATCH + 2), [["id 2", "to 51"]]);
    assert_eq!(from_port(&hub, 1), [["id 3", "to 51"]]);
    assert_eq!(from_port(&snic, PATCH + 1), [["id 1", "to 50"]]);
    let arriving =
        |rules: &EdgeRules, pcie, id| arriving(rules, Carrier::TunnelId, pcie, id).map(told);
    assert_eq!(arriving(&snic, PCIE, 2), Some(vec!["to 2".into()]));
    assert_eq!(arriving(&snic, PCIE, 3), Some(vec!["to 101".into()]));
    assert_eq!(arriving(&hub, PCIE + 1, 1), Some(vec!["to 1".into()]));
    assert!(hub.keys().chain(snic.keys()).all(|(table, _)| *table == 0));
}

#[test]
fn between_links_of_two_types_the_hypervisor_translates() {
    let mut ports = map(&[1, 2]);
    executed_at(&mut ports, 1, 2);
    let hub = rules_over(&[LinkKind::Vlan, LinkKind::Pcie], 0, &ports);
    let arriving = |carrier, pcie, id| arriving(&hub, carrier, pcie, id).map(told);
    let translated = |id: u32| Some(vec!["pop".into(), format!("id {id}"), "to 52".into()]);
    assert_eq!(arriving(Carrier::Tag, PCIE + 1, 2), translated(2));
    assert_eq!(arriving(Carrier::Tag, PCIE + 1, 3), translated(3));
    assert_eq!(arriving(Carrier::TunnelId, PCIE + 1, 2), None);
    // From beside the packet to a tag: those with tags of their own are parsed again before they get it.
    let back = from_port(&hub, PCIE + 2);
    assert!(back.contains(&["push", "vid", "to 51"].map(String::from).into()));
    let detour = ["register", "vid", "nicira 42"].map(String::from);
    assert!(back.contains(&detour.into()), "{back:?}");
    let again: Vec<_> = hub.iter().filter(|((table, _), _)| *table == 1).collect();
    assert!(again
        .iter()
        .any(|(_, rule)| told(rule) == ["push", "vid", "to 51"]));
}

#[test]
fn a_port_number_tells_a_port_of_type_pcie() {
    let of = |kind, number| Carrier::of(kind, number);
    assert_eq!(of(LinkKind::Probed, 0xfe00), Carrier::Tag);
    assert_eq!(of(LinkKind::Probed, 0xfe01), Carrier::TunnelId);
    assert_eq!(of(LinkKind::Probed, 0xfefe), Carrier::TunnelId);
    assert_eq!(of(LinkKind::Probed, 0xfeff), Carrier::Tag);
    assert_eq!(of(LinkKind::Vlan, 0xfe01), Carrier::Tag);
    assert_eq!(of(LinkKind::Pcie, 1), Carrier::TunnelId);
}

#[test]
fn an_id_that_no_tag_carries_crosses_pcie_links_only() {
    let mut ports = map(&[0]);
    ports.get_mut(1).unwrap().flow_id = 70_000;
    let wide = [1, 2].map(|s| rules_over(&[LinkKind::Pcie, LinkKind::Vlan], s, &ports));
    assert_eq!(from_port(&wide[0], PATCH + 1), [["id 70000", "to 50"]]);
    assert_eq!(from_port(&wide[1], PATCH + 1), [Vec::<String>::new()]);
}
