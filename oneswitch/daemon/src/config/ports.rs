//! The tables `[[port]]`: virtual ports and the interfaces that carry them.

use oneswitch_core::{PortConfig, HOME};

use super::reader::{Document, Field, Section, Seen};
use super::switches::{check_interface, Switch};

/// Highest virtual port number; above it are the multicast patch port and OpenFlow's reserved ports.
const PORT_MAX: u32 = 65_023;

/// A `[[port]]` and its first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub config: PortConfig,
    pub line: usize,
}

/// Reads the ports, without unreadable ones.
pub fn read_ports(
    document: &Document<'_>,
    root: &Section<'_>,
    switches: &[Field<Switch>],
    known: &[Option<String>],
) -> Vec<Port> {
    let mut numbers = Seen::default();
    let mut names = Seen::default();
    let mut interfaces = Seen::default();
    for switch in switches {
        reserve_links(switches, switch, &mut interfaces);
    }
    let mut ports = Vec::new();
    for section in root.sections("port", "tables [[port]]") {
        section.only(&["number", "name", "switch", "interface", "executor"]);
        let number = read_number(document, &section, &mut numbers);
        let interface = section.required_string(
            "interface",
            "the name of an interface on the switch's edge bridge",
        );
        let name = section.string("name", "the port's name");
        let switch = section.required_string("switch", "the name of a [[switch]]");
        let executor = section.string("executor", EXECUTOR);
        if let Some(field) = &executor {
            check_executor(document, field, known);
        }
        for field in [&interface, &name].into_iter().flatten() {
            check_interface(document, field);
        }
        if let Some(field) = interface.as_ref().filter(|field| is_plumbing(&field.value)) {
            let name = &field.value;
            document.blame(field, format!("\"{name}\" is the bridge itself or a patch port to virt; it cannot carry a virtual port"));
        }
        if let Some(field) = &switch {
            check_switch(document, field, known);
        }
        let (Some(number), Some(interface), Some(switch)) = (number, interface, switch) else {
            continue;
        };
        let name = name.unwrap_or_else(|| interface.clone());
        names.first(
            document,
            &name,
            &format!("the port name \"{}\"", name.value),
        );
        let place = interface.with((switch.value.clone(), interface.value.clone()));
        interfaces.first(
            document,
            &place,
            &format!("interface \"{}\" of {}", interface.value, switch.value),
        );
        let config = PortConfig {
            number,
            name: name.value,
            switch: switch.value,
            interface: interface.value,
            executor: executor.map(|field| field.value),
            gathered_from: None,
            owner: None,
        };
        ports.push(Port {
            config,
            line: section.line,
        });
    }
    ports
}

/// Tells whether a port of `edge` joins the bridges: `edge`, `edge-mc`, `edge-7`.
fn is_plumbing(interface: &str) -> bool {
    let rest = interface.strip_prefix("edge-");
    interface == "edge" || rest.is_some_and(|rest| rest == "mc" || rest.parse::<u32>().is_ok())
}

pub const EXECUTOR: &str = "\"home\" or the name of a [[switch]]";

/// Like [`check_switch`], but accepts [`HOME`].
pub fn check_executor(document: &Document<'_>, field: &Field<String>, known: &[Option<String>]) {
    if field.value != HOME {
        check_switch(document, field, known);
    }
}

/// Checks that the switch exists; reports nothing while the names of some switches are unknown.
pub fn check_switch(document: &Document<'_>, field: &Field<String>, known: &[Option<String>]) {
    let Some(known) = known.iter().cloned().collect::<Option<Vec<_>>>() else {
        return;
    };
    if !known.is_empty() && !known.contains(&field.value) {
        let (name, list) = (&field.value, known.join(", "));
        document.blame(
            field,
            format!("unknown [[switch]] \"{name}\"; expected one of: {list}"),
        );
    }
}

/// Reserves the PCIe ports, which cannot carry a virtual port.
fn reserve_links(
    switches: &[Field<Switch>],
    switch: &Field<Switch>,
    interfaces: &mut Seen<(String, String)>,
) {
    let (Some(link), Some(hub)) = (&switch.value.link, switches.first()) else {
        return;
    };
    for (name, port) in [
        (&hub.value.name, &link.hypervisor),
        (&switch.value.name, &link.local),
    ] {
        interfaces
            .0
            .entry((name.clone(), port.clone()))
            .or_insert((switch.line, switch.key.clone()));
    }
}

fn read_number(
    document: &Document<'_>,
    section: &Section<'_>,
    numbers: &mut Seen<u32>,
) -> Option<u32> {
    let expected = format!("a number from 1 to {PORT_MAX}");
    let Some(field) = section.integer("number", &expected) else {
        if !section.has("number") {
            section.missing("number", &expected);
        }
        return None;
    };
    match u32::try_from(field.value) {
        Ok(number @ 1..=PORT_MAX) => {
            numbers.first(
                document,
                &field.with(number),
                &format!("port number {number}"),
            );
            Some(number)
        }
        _ => {
            document.blame(&field, format!("{}; expected {expected}", field.value));
            None
        }
    }
}
