//! The tables `[[switch]]`: the hypervisor and the sNICs, and their links.

use std::path::PathBuf;

use oneswitch_core::{LinkConfig, LinkKind, HOME};

use super::reader::{parse_one, Document, Field, Section, Seen};
use crate::endpoint::Active;

/// Bytes of a name that OpenFlow and Linux carry.
const NAME_MAX: usize = 15;

#[derive(Clone, Debug)]
pub struct Switch {
    pub name: String,
    pub virt: Active,
    pub edge: Active,
    /// The control socket of its ovs-vswitchd.
    pub control: Option<PathBuf>,
    pub link: Option<LinkConfig>,
}

/// Reads the switches, and the names of all, as far as possible.
pub fn read_switches(
    document: &Document<'_>,
    root: &Section<'_>,
) -> (Vec<Field<Switch>>, Vec<Option<String>>) {
    let sections = root.sections("switch", "tables [[switch]]");
    if sections.is_empty() {
        root.missing(
            "switch",
            "at least one table [[switch]]; the first is the hypervisor",
        );
    }
    let mut names = Seen::default();
    let mut targets = Seen::default();
    let mut hub_ports = Seen::default();
    let mut switches = Vec::new();
    let mut all = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        section.only(&["name", "virt", "edge", "ovsdb", "control", "link"]);
        // The management plane uses it; only its type is checked here.
        section.string("ovsdb", "a string");
        let control = section.string("control", "the path of ovs-vswitchd's control socket");
        let name = section.required_string("name", "the switch's name");
        if let Some(field) = &name {
            if field.value.is_empty() || field.value.contains(|c: char| c.is_control()) {
                document.blame(field, format!("{:?}; expected a name", field.value));
            }
            if field.value == HOME {
                let text =
                    format!("\"{HOME}\" is reserved: as executor it means a port's own switch");
                document.blame(field, text);
            }
            names.first(document, field, &format!("the name \"{}\"", field.value));
        }
        all.push(name.as_ref().map(|field| field.value.clone()));
        let mut bridge = |key: &str| {
            let field = section.required_string(
                key,
                "the OpenFlow endpoint of the bridge, e.g. unix:/run/openvswitch/br.mgmt",
            )?;
            let endpoint = parse_one(document, &field, Active::parse)?;
            targets.first(
                document,
                &field.with(endpoint.clone()),
                &format!("\"{}\"", field.value),
            );
            Some(endpoint)
        };
        let (virt, edge) = (bridge("virt"), bridge("edge"));
        let link = read_link(document, section, index, &mut hub_ports);
        if let (Some(name), Some(virt), Some(edge)) = (name, virt, edge) {
            switches.push(Field {
                value: Switch {
                    name: name.value,
                    virt,
                    edge,
                    control: control.map(|field| PathBuf::from(field.value)),
                    link,
                },
                line: section.line,
                key: section.key("link"),
            });
        }
    }
    (switches, all)
}

fn read_link(
    document: &Document<'_>,
    switch: &Section<'_>,
    index: usize,
    hub_ports: &mut Seen<String>,
) -> Option<LinkConfig> {
    const EXPECTED: &str =
        "{ hypervisor = \"pcie-snicK\", local = \"pf0hpf\" }, the PCIe ports' names";
    let Some(link) = switch.section("link", EXPECTED) else {
        if index > 0 {
            switch.missing("link", EXPECTED);
        }
        return None;
    };
    if index == 0 {
        document.problem(
            link.line,
            &switch.key("link"),
            "the first switch is the hypervisor, the hub of the star, which has no link",
        );
    }
    link.only(&["hypervisor", "local", "type", "path", "address", "queues"]);
    // Plumbing uses them; only their types are checked here.
    link.string("path", "the path of a socket");
    link.string("address", "an IP address and a TCP port");
    link.integer("queues", "a number of receive queues");
    let kind = link
        .string("type", LINK_TYPE)
        .map_or(Some(LinkKind::Probed), |field| {
            parse_one(document, &field, link_type)
        });
    let hypervisor = link.required_string(
        "hypervisor",
        "the PCIe port's name on the hypervisor's edge bridge",
    )?;
    let local =
        link.required_string("local", "the PCIe port's name on this switch's edge bridge")?;
    for field in [&hypervisor, &local] {
        check_interface(document, field);
    }
    hub_ports.first(
        document,
        &hypervisor,
        &format!("the hypervisor's port \"{}\"", hypervisor.value),
    );
    Some(LinkConfig {
        hypervisor: hypervisor.value,
        local: local.value,
        kind: kind?,
    })
}

const LINK_TYPE: &str = "\"vlan\" or \"pcie\"";

fn link_type(text: &str) -> Result<LinkKind, String> {
    match text {
        "vlan" => Ok(LinkKind::Vlan),
        "pcie" => Ok(LinkKind::Pcie),
        _ => Err(format!("\"{text}\"; expected {LINK_TYPE}")),
    }
}

/// Checks a name of an interface or port: 1 to 15 bytes without spaces or slashes, as in Linux.
pub fn check_interface(document: &Document<'_>, field: &Field<String>) {
    let name = &field.value;
    if name.is_empty()
        || name.len() > NAME_MAX
        || name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/')
    {
        document.blame(
            field,
            format!(
                "\"{name}\"; expected a name of 1 to {NAME_MAX} bytes without spaces or slashes"
            ),
        );
    }
}
