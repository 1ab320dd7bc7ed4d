use super::*;
use crate::config::Config;
use crate::server::build_core;
use oneswitch_core::{ControllerId, Greeting};
use openflow13::{encode, FlowMod, FlowModCommand, Instructions, Match, Message};

const SERVER: &str = r#"
[oneswitchd]
datapath_id = "0000000000000001"
[[switch]]
name = "hypervisor"
virt = "unix:/v"
edge = "unix:/e"
"#;

const CONTROLLER: ControllerId = ControllerId(1);

/// Creates a core without connected switches: it accepts everything at once.
fn core(now: Instant) -> Core {
    let config = Config::parse("server.toml", SERVER).unwrap();
    let mut core = build_core(&config, now).unwrap();
    core.controller_up(CONTROLLER, Greeting::CONTROLLER, now);
    core
}

fn add(core: &mut Core, number: u16, now: Instant) {
    let message = FlowMod {
        cookie: number.into(),
        instructions: Instructions::none(),
        ..FlowMod::new(FlowModCommand::Add, 0, number, Match::any())
    };
    let frame = encode(1, &Message::FlowMod(message)).unwrap();
    core.controller_message(CONTROLLER, &frame, now);
    core.end_of_batch(now);
}

fn restored(path: &Path, now: Instant) -> Restored {
    restore(path, &mut core(now), now).unwrap().unwrap()
}

#[test]
fn what_was_appended_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/journal");
    let now = Instant::now();
    let mut core = core(now);
    assert_eq!(restore(&path, &mut core, now), Ok(None));
    let mut journal = Journal::begin(&path, &mut core, now).unwrap();
    assert_eq!(restored(&path, now).flows, 0);
    for number in 1..=5 {
        add(&mut core, number, now);
        journal.append(&mut core, now);
        assert_eq!(restored(&path, now).flows, usize::from(number));
    }
}

#[test]
fn a_long_journal_is_made_short() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let now = Instant::now();
    let mut core = core(now);
    let mut journal = Journal::begin(&path, &mut core, now).unwrap();
    let mut longest = 0;
    for _ in 0..30_000 {
        add(&mut core, 7, now);
        journal.append(&mut core, now);
        longest = longest.max(fs::metadata(&path).unwrap().len());
    }
    assert!((SLACK..SLACK + 4096).contains(&longest), "{longest}");
    let restored = restored(&path, now);
    assert_eq!(restored.flows, 1);
    assert!(restored.records < 30_000);
}

#[test]
fn damage_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let now = Instant::now();
    fs::write(&path, "no journal").unwrap();
    let error = restore(&path, &mut core(now), now).unwrap_err();
    assert!(error.contains("damaged at byte 0"), "{error}");
    assert!(error.contains("move it away"), "{error}");
}

#[test]
fn a_journal_that_could_not_be_written_is_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sub/journal");
    let now = Instant::now();
    let mut core = core(now);
    let mut journal = Journal::begin(&path, &mut core, now).unwrap();
    // Simulates a full disk: the file cannot be written any more.
    journal.file = Some(File::open(&path).unwrap());
    add(&mut core, 1, now);
    journal.append(&mut core, now);
    assert!(journal.file.is_none());
    add(&mut core, 2, now);
    journal.append(&mut core, now);
    assert_eq!(restored(&path, now).flows, 0);
    journal.append(&mut core, now + RETRY);
    assert_eq!(restored(&path, now).flows, 2);
}
