use super::*;
use oneswitch_core::LinkKind;

const GOOD: &str = r#"
[oneswitchd]
datapath_id = "00000000000000a1"
listen      = ["ptcp:6653:127.0.0.1", "punix:/run/oneswitch/oneswitchd.mgmt"]
controllers = ["tcp:127.0.0.1:6633", "ssl:[::1]"]
api         = "unix:/run/oneswitch/oneswitchd.sock"
state       = "/var/lib/oneswitch/ports.json"
log         = "debug"

[oneswitchd.tls]
private_key = "k.pem"
certificate = "c.pem"
ca_certificate = "ca.pem"

[[switch]]
name    = "hypervisor"
virt    = "unix:/run/openvswitch/virt.mgmt"
edge    = "unix:/run/openvswitch/edge.mgmt"
ovsdb   = "unix:/run/openvswitch/db.sock"
control = "/run/openvswitch/ovs-vswitchd.ctl"

[[switch]]
name    = "snic0"
virt    = "tcp:192.168.100.2:6640"
edge    = "tcp:192.168.100.2:6641"
ovsdb   = "tcp:192.168.100.2:6642"
link    = { hypervisor = "pcie-snic0", local = "pf0hpf" }

[[port]]
number    = 1
name      = "first"
switch    = "hypervisor"
interface = "vm1"

[[port]]
number    = 65_023
switch    = "snic0"
interface = "pf0vf0"
"#;

/// The smallest valid file; 10 lines.
const SMALL: &str = r#"[oneswitchd]
datapath_id = "0000000000000001"
[[switch]]
name = "hypervisor"
virt = "unix:/v"
edge = "unix:/e"
[[port]]
number = 1
switch = "hypervisor"
interface = "vm1"
"#;

fn problems(text: &str) -> Vec<String> {
    match Config::parse("server.toml", text) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.0.iter().map(ToString::to_string).collect(),
    }
}

/// Returns the only error of the text.
fn problem(text: &str) -> String {
    let problems = problems(text);
    assert_eq!(problems.len(), 1, "{problems:#?}\nabout\n{text}");
    problems.into_iter().next().unwrap()
}

#[test]
fn the_contracts_example_is_read() {
    let config = Config::parse("server.toml", GOOD).unwrap();
    assert_eq!(config.datapath_id, 0xa1);
    assert_eq!(config.listen.len(), 2);
    assert_eq!(config.controllers[1].to_string(), "ssl:[::1]:6653");
    assert_eq!(config.log, Level::Debug);
    assert_eq!(
        config.tls.as_ref().unwrap().ca_certificate,
        Path::new("ca.pem")
    );
    assert_eq!(config.switches[1].link.as_ref().unwrap().local, "pf0hpf");
    let names: Vec<_> = config
        .ports
        .iter()
        .map(|port| (port.config.number, port.config.name.as_str(), port.line))
        .collect();
    assert_eq!(names, [(1, "first", 29), (65_023, "pf0vf0", 35)]);
    let core = config.core(vec![]);
    assert_eq!(core.switches.len(), 2);
}

#[test]
fn what_is_left_out_has_a_default() {
    let config = Config::parse("server.toml", SMALL).unwrap();
    assert_eq!(
        config.api.to_string(),
        "unix:/run/oneswitch/oneswitchd.sock"
    );
    assert_eq!(config.log, Level::Info);
    assert!(
        config.listen.is_empty()
            && config.controllers.is_empty()
            && config.state.is_none()
            && config.tls.is_none()
    );
}

#[test]
fn every_complaint_names_file_line_and_key() {
    // The text to replace in SMALL, its replacement, and the error.
    for (old, new, complaint) in [
        ("0000000000000001", "1", "server.toml:2: oneswitchd.datapath_id: \"1\"; expected 16 hex digits, not all zero"),
        ("0000000000000001", "0000000000000000", "server.toml:2: oneswitchd.datapath_id: \"0000000000000000\"; expected"),
        ("0000000000000001", "000000000000000g", "server.toml:2: oneswitchd.datapath_id: \"000000000000000g\"; expected"),
        ("\"0000000000000001\"", "1", "server.toml:2: oneswitchd.datapath_id: the number 1; expected 16 hex digits, not all zero"),
        ("datapath_id = \"0000000000000001\"\n", "", "server.toml:1: oneswitchd.datapath_id: missing; expected 16 hex digits"),
        ("[[switch]]\n", "colour = 3\n[[switch]]\n", "server.toml:3: oneswitchd.colour: unknown key; expected one of: datapath_id, executor, stateful, gather_at, meters, listen,"),
        ("[[switch]]\n", "listen = \"ptcp:\"\n[[switch]]\n", "server.toml:3: oneswitchd.listen: the string \"ptcp:\"; expected an array of strings"),
        ("[[switch]]\n", "listen = [\n\"ptcp:\",\n7]\n[[switch]]\n", "server.toml:5: oneswitchd.listen[1]: the number 7; expected"),
        ("[[switch]]\n", "listen = [\"tcp:1.2.3.4\"]\n[[switch]]\n", "server.toml:3: oneswitchd.listen[0]: \"tcp:1.2.3.4\" connects to a peer"),
        ("[[switch]]\n", "listen = [\"ptcp:\",\n\"ptcp:6653\"]\n[[switch]]\n", "server.toml:4: oneswitchd.listen[1]: \"ptcp:6653\" is used twice; first as oneswitchd.listen[0] in line 3"),
        ("[[switch]]\n", "controllers = [\"tcp:1.2.3.4:x\"]\n[[switch]]\n", "server.toml:3: oneswitchd.controllers[0]: \"x\" is not a port number"),
        ("[[switch]]\n", "controllers = [\"ssl:1.2.3.4\"]\n[[switch]]\n", "server.toml:1: oneswitchd.tls: missing; expected a table [oneswitchd.tls], because"),
        ("unix:/v", "ssl:h", "server.toml:1: oneswitchd.tls: missing"),
        ("[[switch]]\n", "log = \"loud\"\n[[switch]]\n", "server.toml:3: oneswitchd.log: \"loud\" is not a log level"),
        ("[[switch]]\n", "api = \"tcp:0.0.0.0:80\"\n[[switch]]\n", "server.toml:3: oneswitchd.api: 0.0.0.0 is not a loopback address"),
        ("[[switch]]\n", "api = \"tcp:127.0.0.1:80\"\n[[switch]]\n", "server.toml:1: oneswitchd.api_token_file: missing"),
        ("[[switch]]\n", "api_token_file = \"t\"\n[[switch]]\n", "server.toml:3: oneswitchd.api_token_file: is for an API on TCP"),
        ("[[switch]]\n", "tls = 1\n[[switch]]\n", "server.toml:3: oneswitchd.tls: the number 1; expected a table"),
        ("[[switch]]\n", "[oneswitchd.tls]\nprivate_key = \"k\"\ncertificate = \"c\"\n[[switch]]\n", "server.toml:3: oneswitchd.tls.ca_certificate: missing"),
        ("unix:/v", "punix:/v", "server.toml:5: switch[0].virt: \"punix:/v\" waits for connections"),
        ("unix:/e", "unix:/v", "server.toml:6: switch[0].edge: \"unix:/v\" is used twice; first as switch[0].virt in line 5"),
        ("edge = \"unix:/e\"\n", "", "server.toml:3: switch[0].edge: missing; expected the OpenFlow endpoint"),
        ("[[switch]]\n", "executor = \"snic9\"\n[[switch]]\n", "server.toml:3: oneswitchd.executor: unknown [[switch]] \"snic9\"; expected one of: hypervisor"),
        ("number = 1", "number = 1\nexecutor = \"snic9\"", "server.toml:9: port[0].executor: unknown [[switch]] \"snic9\""),
        ("name = \"hypervisor\"", "name = 5", "server.toml:4: switch[0].name: the number 5; expected"),
        ("[[port]]", "link = { hypervisor = \"a\", local = \"b\" }\n[[port]]", "server.toml:7: switch[0].link: the first switch is the hypervisor"),
        ("[[port]]", "speed = 1\n[[port]]", "server.toml:7: switch[0].speed: unknown key; expected one of: name, virt, edge, ovsdb, control, link"),
        ("number = 1", "number = 0", "server.toml:8: port[0].number: 0; expected a number from 1 to 65023"),
        ("number = 1", "number = 65024", "server.toml:8: port[0].number: 65024; expected"),
        ("number = 1", "number = \"1\"", "server.toml:8: port[0].number: the string \"1\"; expected"),
        ("number = 1", "number = 1.5", "server.toml:8: port[0].number: the number 1.5; expected"),
        ("number = 1\n", "", "server.toml:7: port[0].number: missing"),
        ("switch = \"hypervisor\"", "switch = \"snic9\"", "server.toml:9: port[0].switch: unknown [[switch]] \"snic9\"; expected one of: hypervisor"),
        ("interface = \"vm1\"", "interface = \"0123456789abcdef\"", "server.toml:10: port[0].interface: \"0123456789abcdef\"; expected a name of 1 to 15 bytes"),
        ("interface = \"vm1\"", "interface = \"vm1\"\nname = \"a b\"", "server.toml:11: port[0].name: \"a b\"; expected"),
        ("interface = \"vm1\"", "interface = \"vm1\"\ninterface = \"vm2\"", "server.toml:11: not TOML: duplicate key"),
        ("interface = \"vm1\"", "interface = \"vm1", "server.toml:10: not TOML: "),
        ("interface = \"vm1\"", "interface = \"edge-12\"", "server.toml:10: port[0].interface: \"edge-12\" is the bridge itself or a patch port"),
        ("interface = \"vm1\"", "port = 7\ninterface = \"vm1\"", "server.toml:10: port[0].port: unknown key"),
        ("[oneswitchd]", "[oneswitch]", "server.toml:1: oneswitch: unknown key; expected one of: oneswitchd, switch, port"),
    ] {
        assert!(SMALL.contains(old), "{old}");
        let found = problems(&SMALL.replacen(old, new, 1));
        assert!(found.iter().any(|found| found.starts_with(complaint)), "expected {complaint}\nfound {found:#?}");
        // A missing table is reported in addition to the misspelt one.
        assert_eq!(found.len(), if new == "[oneswitch]" { 2 } else { 1 }, "{found:#?}");
    }
}

#[test]
fn executors_are_the_home_unless_somebody_says_otherwise() {
    let config = Config::parse("server.toml", SMALL).unwrap();
    assert_eq!(
        (&*config.executor, &config.ports[0].config.executor),
        (HOME, &None)
    );
    let chosen = SMALL.replace("[[switch]]", "executor = \"hypervisor\"\n[[switch]]");
    let config = Config::parse("server.toml", &format!("{chosen}executor = \"home\"\n")).unwrap();
    assert_eq!(config.executor, "hypervisor");
    assert_eq!(config.ports[0].config.executor.as_deref(), Some(HOME));
    let home = SMALL.replace("\"hypervisor\"", "\"home\"");
    assert!(problem(&home).starts_with("server.toml:4: switch[0].name: \"home\" is reserved"));
}

#[test]
fn a_link_is_probed_unless_its_type_is_given() {
    let parse = |link: &str| {
        let snic = "[[switch]]\nname = \"snic0\"\nvirt = \"unix:/v0\"\nedge = \"unix:/e0\"\n";
        let text = format!("{SMALL}{snic}link = {{ hypervisor = \"a\", local = \"b\"{link} }}\n");
        Config::parse("server.toml", &text).map(|config| config.switches[1].link.clone().unwrap())
    };
    let kind = |link: &str| parse(link).unwrap().kind;
    assert_eq!(kind(""), LinkKind::Probed);
    assert_eq!(kind(", type = \"vlan\""), LinkKind::Vlan);
    assert_eq!(kind(", type = \"pcie\", path = \"/run/s\""), LinkKind::Pcie);
    assert_eq!(kind(", address = \"192.0.2.1:7700\""), LinkKind::Probed);
    assert_eq!(kind(", queues = 2"), LinkKind::Probed);
    let wrong = parse(", type = \"nsh\"").unwrap_err().to_string();
    let told = "server.toml:15: switch[1].link.type: \"nsh\"; expected \"vlan\" or \"pcie\"";
    assert_eq!(wrong, told);
}

#[test]
fn what_must_be_unique_names_its_first_use() {
    let port = |number: u32, name: &str, interface: &str| {
        format!("[[port]]\nnumber = {number}\nname = \"{name}\"\nswitch = \"hypervisor\"\ninterface = \"{interface}\"\n")
    };
    for (second, complaint) in [
        (port(1, "b", "vm2"), "server.toml:12: port[1].number: port number 1 is used twice; first as port[0].number in line 8"),
        (port(2, "vm1", "vm2"), "server.toml:13: port[1].name: the port name \"vm1\" is used twice; first as port[0].interface in line 10"),
        (port(2, "b", "vm1"), "server.toml:15: port[1].interface: interface \"vm1\" of hypervisor is used twice; first as port[0].interface in line 10"),
    ] {
        assert_eq!(problem(&format!("{SMALL}{second}")), complaint);
    }
    let switch = |name: &str, virt: &str, link: &str| {
        format!("[[switch]]\nname = \"{name}\"\nvirt = \"unix:/{virt}\"\nedge = \"unix:/{virt}e\"\nlink = {link}\n")
    };
    let link = "{ hypervisor = \"pcie-snic0\", local = \"pf0hpf\" }";
    assert_eq!(
        problem(&format!("{SMALL}{}", switch("hypervisor", "s", link))),
        "server.toml:12: switch[1].name: the name \"hypervisor\" is used twice; first as switch[0].name in line 4"
    );
    assert_eq!(
        problem(&format!("{SMALL}{}", switch("snic0", "v", link))),
        "server.toml:13: switch[1].virt: \"unix:/v\" is used twice; first as switch[0].virt in line 5"
    );
    assert_eq!(
        problem(&format!("{SMALL}{}{}", switch("snic0", "s0", link), switch("snic1", "s1", link))),
        "server.toml:20: switch[2].link.hypervisor: the hypervisor's port \"pcie-snic0\" is used twice; first as switch[1].link.hypervisor in line 15"
    );
    assert_eq!(
        problem(&format!("{SMALL}{}", switch("snic0", "s", link).replace("link", "#"))),
        "server.toml:11: switch[1].link: missing; expected { hypervisor = \"pcie-snicK\", local = \"pf0hpf\" }, the PCIe ports' names"
    );
    let taken = port(2, "x", "pcie-snic0");
    assert_eq!(
        problem(&format!("{SMALL}{}{taken}", switch("snic0", "s", link))),
        "server.toml:20: port[1].interface: interface \"pcie-snic0\" of hypervisor is used twice; first as switch[1].link in line 11"
    );
}

#[test]
fn all_complaints_come_at_once_in_the_order_of_the_lines() {
    let text = SMALL
        .replace("number = 1", "number = 0")
        .replace("unix:/v", "tcp:")
        .replace("\"0000", "\"000");
    let found = problems(&text);
    let lines: Vec<_> = found
        .iter()
        .map(|problem| problem.split(':').nth(1).unwrap())
        .collect();
    assert_eq!(lines, ["2", "5", "8"], "{found:#?}");
}

#[test]
fn a_missing_file_and_an_empty_one_are_named() {
    let error = Config::load(Path::new("/nonexistent/server.toml"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("/nonexistent/server.toml: cannot be read: No such file"),
        "{error}"
    );
    let found = problems("");
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(
        found
            .iter()
            .any(|found| found.starts_with("server.toml: oneswitchd: missing")),
        "{found:#?}"
    );
}

#[test]
fn journal_and_audit_have_defaults() {
    let small = Config::parse("server.toml", SMALL).unwrap();
    assert_eq!(
        (small.journal, small.audit),
        (None, Duration::from_secs(30))
    );
    let more = "[oneswitchd]\njournal = \"/j\"\naudit_s = 0";
    let config = Config::parse("server.toml", &SMALL.replace("[oneswitchd]", more)).unwrap();
    assert_eq!(config.journal.as_deref(), Some(Path::new("/j")));
    assert_eq!(config.audit, Duration::ZERO);
    let wrong = SMALL.replace("[oneswitchd]", "[oneswitchd]\naudit_s = -1");
    assert!(problem(&wrong).contains("audit_s"));
}
