//! Verdicts are those of ndpiReader, whatever happens to the program. Compares with ndpiReader itself (Debian's libndpi-bin), on capture files of nDPI's sources,
//! which `tools/prepare soak` unpacks into .venv/captures; without these, on those of os-ken's package. Every day on a few, and on all with `NF_DPI_CAPTURES=all`
//! (`make soak`). `NF_DPI_FAULTS=1000` sets how often the program is killed, and how often its flows move.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests

mod common;

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use common::{
    capture::{self, Captured},
    play::{play, Fault},
    program,
};
use nf_dpi::{Answer, Catalogue, Inspector, Protocol, Settings};

/// Of the sources' captures, those of every day: SSH, TLS, DNS over HTTPS, QUIC, IPv6.
const EVERY_DAY: [&str; 5] = [
    "ssh.pcap",
    "http_ipv6.pcap",
    "dns_doh.pcap",
    "skype_udp.pcap",
    "quic_q50.pcap",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn captures() -> Vec<PathBuf> {
    let mut all = Vec::new();
    collect(&root().join(".venv/captures/ndpi"), &mut all);
    all.retain(|path| {
        path.parent()
            .is_some_and(|folder| folder.ends_with("tests/pcap"))
    });
    if env::var_os("NF_DPI_CAPTURES").is_none() {
        all.retain(|path| EVERY_DAY.iter().any(|name| path.ends_with(name)));
    }
    if all.is_empty() {
        collect(&root().join(".venv/lib"), &mut all);
        all.retain(|path| {
            path.components()
                .any(|part| part.as_os_str() == "packet_data")
        });
    }
    all.sort();
    all
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let kind = path.extension().and_then(|kind| kind.to_str());
        if path.is_dir() {
            collect(&path, into);
        } else if matches!(kind, Some("pcap" | "pcapng" | "cap")) {
            into.push(path);
        }
    }
}

fn faults() -> usize {
    env::var("NF_DPI_FAULTS").map_or(3, |number| number.parse().unwrap())
}

/// A flow in ndpiReader's output: the numbers of the protocols, and the rest of the line, which begins with the host.
type Lines = BTreeMap<u64, (String, String)>;

fn ndpireader(capture: &Path) -> Option<Lines> {
    let directory = tempfile::tempdir().unwrap();
    let csv = directory.path().join("flows.csv");
    let mut command = Command::new("ndpiReader");
    command
        .args(["-q", "-t", "-i"])
        .arg(capture)
        .arg("-C")
        .arg(&csv);
    let status = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .ok()?;
    if !status.success() {
        return Some(Lines::new()); // it reads no such file
    }
    let text = fs::read(&csv).unwrap();
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().skip(1).filter_map(|line| {
        let mut fields = line.splitn(12, ',');
        let flow = fields.next()?.parse().ok()?;
        let numbers = fields.nth(8)?.to_owned();
        let _name = fields.next()?;
        Some((flow, (numbers, fields.next()?.to_owned())))
    });
    Some(lines.collect())
}

/// As `ndpi_protocol2id`.
fn numbers(
    Protocol {
        master,
        application,
    }: Protocol,
) -> String {
    if master != 0 && application != 0 && master != application {
        format!("{master}.{application}")
    } else {
        application.max(master).to_string()
    }
}

fn hexadecimal(value: [u8; 16]) -> String {
    value.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the differences.
fn difference(
    expected: &Lines,
    found: &BTreeMap<u64, Answer>,
    catalogue: &Catalogue,
) -> Vec<String> {
    let mut different = Vec::new();
    // ndpiReader leaves out what it does not know.
    for (flow, answer) in found {
        if !expected.contains_key(flow) && answer.protocol != Protocol::default() {
            let numbers = numbers(answer.protocol);
            different.push(format!("flow {flow}: {numbers}, expected none"));
        }
    }
    for (flow, (protocol, rest)) in expected {
        let Some(answer) = found.get(flow) else {
            different.push(format!("flow {flow}: none, expected {protocol}"));
            continue;
        };
        let name = catalogue.protocol(answer.protocol);
        let host = String::from_utf8_lossy(answer.host.as_bytes()).into_owned();
        // ndpiReader prints the client's version as the host of SSH.
        let same_host = name == "SSH" || rest.starts_with(&format!("{host},"));
        let fingerprints = [answer.ja3, answer.ja3_server].into_iter().flatten();
        let same_fingerprints = fingerprints
            .map(hexadecimal)
            .all(|one| rest.contains(&format!(",{one},")));
        if numbers(answer.protocol) != *protocol || !same_host || !same_fingerprints {
            let numbers = numbers(answer.protocol);
            different.push(format!(
                "flow {flow}: {numbers} {name} {host:?}, expected {protocol} {rest:.60}"
            ));
        }
    }
    different
}

struct Case {
    name: String,
    packets: Vec<Captured>,
    expected: Lines,
}

/// The captures with packets, and what ndpiReader says about them. None: it is not there.
fn cases() -> Option<Vec<Case>> {
    let mut cases = Vec::new();
    for path in captures() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(expected) = ndpireader(&path) else {
            eprintln!("SKIPPED: there is no ndpiReader; on Debian: apt-get install libndpi-bin");
            return None;
        };
        let Some((packets, _)) = capture::read(&path) else {
            continue;
        };
        cases.push(Case {
            name,
            packets,
            expected,
        });
    }
    Some(cases)
}

#[test]
fn verdicts_are_those_of_ndpireader_and_stay_so_through_kills_and_moves() {
    let Some(program) = program() else { return };
    let Some(cases) = cases() else { return };
    assert!(
        !cases.is_empty(),
        "there are no captures: neither `tools/prepare soak` nor `test` has run"
    );
    let settings = Settings::new(program);
    let catalogue = catalogue(&settings);
    let mut report = Report::default();
    let mut quiet = Vec::new();
    for case in &cases {
        let verdicts = play(&case.packets, &settings, u64::MAX, &[]);
        let different = difference(&case.expected, &verdicts, &catalogue);
        report.captures += usize::from(different.is_empty());
        different
            .iter()
            .for_each(|line| eprintln!("{}: {line}", case.name));
        report.flows += verdicts.len();
        if env::var_os("NF_DPI_CAPTURES").is_some() {
            let short = play(&case.packets, &settings, 8, &[]);
            let differs =
                |(flow, answer): &(&u64, &Answer)| verdicts[flow].protocol != answer.protocol;
            report.short += short.iter().filter(differs).count();
        }
        quiet.push(verdicts);
    }
    let mut random = Random(1);
    for number in 0..faults() {
        let which = number % cases.len();
        for fault in [Fault::Kill, Fault::Move] {
            suffer(&cases[which], &quiet[which], &settings, fault, &mut random);
        }
    }
    eprintln!(
        "{} of {} captures as ndpiReader, {} flows; {} kills and as many moves; with prefixes of 8 packets {} verdicts differ (counted with NF_DPI_CAPTURES)",
        report.captures, cases.len(), report.flows, faults(), report.short
    );
    assert!(
        report.captures + 1 >= cases.len(),
        "{} of {}",
        report.captures,
        cases.len()
    );
}

/// Plays a capture again, with a fault at some packet: the verdicts must be the same.
fn suffer(
    case: &Case,
    quiet: &BTreeMap<u64, Answer>,
    settings: &Settings,
    fault: Fault,
    random: &mut Random,
) {
    let at = random.below(case.packets.len().max(1));
    let again = play(&case.packets, settings, u64::MAX, &[(at, fault)]);
    let differs = |(flow, answer): &(&u64, &Answer)| quiet.get(flow) != Some(*answer);
    let different = again.iter().filter(differs).count();
    assert_eq!(
        (again.len(), different),
        (quiet.len(), 0),
        "{}: {fault:?} at packet {at}",
        case.name
    );
}

#[derive(Default)]
struct Report {
    captures: usize,
    flows: usize,
    short: usize,
}

fn catalogue(settings: &Settings) -> Catalogue {
    let inspector = Inspector::start(settings.clone(), || ()).unwrap();
    inspector.catalogue().clone()
}

/// Numbers that are the same each time (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}
