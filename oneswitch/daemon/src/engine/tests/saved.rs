//! The engine and the file of the port map.

use std::path::Path;
use std::time::Duration;

use oneswitch_core::{MoveRequest, MoveUntil};
use openflow13::{
    decode, encode, encode_multipart_reply, Message, MultipartReply, MultipartRequest, Port,
    PortStats,
};

use super::*;
use crate::journal::restore;
use crate::server::build_core;
use crate::state::StateFile;

pub(super) const SERVER: &str = r#"
[oneswitchd]
datapath_id = "00000000000000a1"
state = "STATE"
[[switch]]
name = "hypervisor"
virt = "unix:/v"
edge = "unix:/e"
[[port]]
number = 1
switch = "hypervisor"
interface = "vm1"
"#;

/// Answers as a bridge with nothing but ports, if it would answer.
fn answer_of(bridge: Bridge, frame: &[u8]) -> Vec<Vec<u8>> {
    let (header, message) = decode(frame).unwrap();
    let port = |(number, name): (u32, &str)| Port {
        number,
        name: Port::name_bytes(name),
        ..Port::default()
    };
    let request = match message {
        Message::BarrierRequest => {
            return vec![encode(header.xid, &Message::BarrierReply).unwrap()];
        }
        Message::MultipartRequest(request) => request.body,
        _ => return Vec::new(),
    };
    let reply = match (request, bridge) {
        (MultipartRequest::PortDesc, Bridge::Virt) => {
            MultipartReply::PortDesc([(1, "virt-1")].map(port).to_vec())
        }
        (MultipartRequest::PortDesc, Bridge::Edge) => {
            let ports = [(1, "vm1"), (2, "vm2"), (101, "edge-1")];
            MultipartReply::PortDesc(ports.map(port).to_vec())
        }
        (MultipartRequest::GroupDesc, _) => MultipartReply::GroupDesc(Vec::new()),
        (MultipartRequest::MeterConfig { .. }, _) => MultipartReply::MeterConfig(Vec::new()),
        (MultipartRequest::PortStats { port }, _) => MultipartReply::PortStats(vec![PortStats {
            port_no: port,
            ..PortStats::default()
        }]),
        _ => MultipartReply::Flow(Vec::new()),
    };
    encode_multipart_reply(header.xid, &reply)
}

/// Runs rounds until nothing is sent any more.
fn settle(core: &mut Core, journal: &mut Journal, now: StdInstant) {
    loop {
        core.end_of_batch(now);
        journal.append(core, now);
        let outputs = core.take_outputs();
        if outputs.is_empty() {
            return;
        }
        answer_all(core, outputs, now);
    }
}

/// Answers for the switch what the core has sent it.
pub(super) fn answer_all(core: &mut Core, outputs: Vec<(Destination, Vec<u8>)>, now: StdInstant) {
    for (destination, bytes) in outputs {
        let Destination::Switch(switch, bridge) = destination else {
            continue;
        };
        for (_, frame) in messages(&bytes) {
            for reply in answer_of(bridge, frame) {
                core.switch_message(switch, bridge, &reply, now);
            }
        }
    }
}

/// Moves port 1, and is killed before it has saved the port map.
fn move_and_die(config: &Config, journal: &Path) {
    let now = StdInstant::now();
    let mut core = build_core(config, now).unwrap();
    let mut journal = Journal::begin(journal, &mut core, now).unwrap();
    core.switch_up(0, Bridge::Virt, now);
    core.switch_up(0, Bridge::Edge, now);
    settle(&mut core, &mut journal, now);
    let request = MoveRequest {
        switch: "hypervisor".into(),
        interface: "vm2".into(),
        until: MoveUntil::Done,
        settle: Duration::ZERO,
        grace: Duration::ZERO,
        force: false,
        owner: None,
    };
    core.begin_move(1, request, now).unwrap();
    settle(&mut core, &mut journal, now);
    assert!(matches!(core.move_outcome(1), Some(Ok(()))));
}

#[tokio::test]
async fn a_move_that_is_done_leaves_the_journal_when_the_port_map_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let (state, file) = (folder.path().join("ports"), folder.path().join("journal"));
    let text = SERVER.replace("STATE", &state.display().to_string());
    let config = Config::parse("server.toml", &text).unwrap();
    move_and_die(&config, &file);
    let restarted = || {
        let now = StdInstant::now();
        let mut core = build_core(&config, now).unwrap();
        restore(&file, &mut core, now).unwrap();
        core
    };
    let mut core = restarted();
    assert!(core.has_unsaved_ports());
    let now = StdInstant::now();
    let journal = Journal::begin(&file, &mut core, now).unwrap();
    let (saver, saving) = Saver::new(StateFile::new(&config).unwrap());
    let report = Report::new(&config, Vec::new(), String::new(), now);
    let engine = Engine::new(core, report, Some(saver)).with_journal(Some(journal));
    let (events, queue) = mpsc::unbounded_channel();
    let running = tokio::spawn(engine.run(queue));
    status(&events).await;
    // Nothing more happens in the core: its own times have passed.
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(60)).await;
    tokio::time::resume();
    let saving = tokio::spawn(saving);
    let forgotten = async {
        while restarted().has_unsaved_ports() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let result = tokio::time::timeout(Duration::from_secs(20), forgotten).await;
    result.expect("the journal has the move still");
    let ports = restarted().ports();
    assert_eq!(ports[0].interface, "vm2");
    events.send(Event::Stop).unwrap();
    running.await.unwrap();
    saving.await.unwrap();
}
