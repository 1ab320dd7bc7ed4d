use std::sync::Arc;
use std::time::Instant as StdInstant;

use openflow13::kind;
use tokio::io::{duplex, AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::config::Config;
use crate::events::{Answer, Request};
use crate::session::{run, Ended, Timing};

mod backlog;
mod outcomes;
mod saved;

const SERVER: &str = r#"
[oneswitchd]
datapath_id = "00000000000000a1"
controllers = ["tcp:192.0.2.1"]
[[switch]]
name = "hypervisor"
virt = "unix:/v"
edge = "unix:/e"
"#;

const HELLO: [u8; 8] = [4, 0, 0, 8, 0, 0, 0, 9];

fn engine() -> Engine {
    let config = Config::parse("server.toml", SERVER).unwrap();
    let core = crate::server::build_core(&config, StdInstant::now()).unwrap();
    let report = Report::new(&config, Vec::new(), String::new(), StdInstant::now());
    Engine::new(core, report, None)
}

fn controller(dialled: Option<usize>) -> Peer {
    Peer::Controller {
        target: Arc::from("tcp:192.0.2.1:6653"),
        dialled,
        address: "192.0.2.1:6653".into(),
    }
}

/// A peer with an established session: our end, the engine's, and the following events.
async fn peer(
    connection: u64,
    peer: Peer,
    events: &mpsc::UnboundedSender<Event>,
) -> (DuplexStream, JoinHandle<Ended>) {
    let (ours, mut theirs) = duplex(1 << 20);
    let events = events.clone();
    let session =
        tokio::spawn(async move { run(ours, connection, peer, Timing::NETWORK, &events).await });
    theirs.write_all(&HELLO).await.unwrap();
    theirs.read_exact(&mut [0; 16]).await.unwrap();
    (theirs, session)
}

async fn read_message(stream: &mut DuplexStream) -> Vec<u8> {
    let mut frame = vec![0; 8];
    stream.read_exact(&mut frame).await.unwrap();
    frame.resize(usize::from(u16::from_be_bytes([frame[2], frame[3]])), 0);
    stream.read_exact(&mut frame[8..]).await.unwrap();
    frame
}

async fn status(events: &mpsc::UnboundedSender<Event>) -> serde_json::Value {
    let (reply, answer) = oneshot::channel();
    let request = Request::Status;
    events.send(Event::Request { request, reply }).unwrap();
    match answer.await.unwrap() {
        Ok(Answer::Status(status)) => serde_json::to_value(status).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_controller_is_answered_counted_and_forgotten() {
    let (events, queue) = mpsc::unbounded_channel();
    let running = tokio::spawn(engine().run(queue));
    let (mut stream, session) = peer(7, controller(Some(0)), &events).await;
    for xid in 1..=3 {
        let request = [4, kind::FEATURES_REQUEST, 0, 8, 0, 0, 0, xid];
        stream.write_all(&request).await.unwrap();
        let reply = read_message(&mut stream).await;
        assert_eq!((reply[1], reply[7]), (kind::FEATURES_REPLY, xid));
        assert_eq!(reply[8..16], [0, 0, 0, 0, 0, 0, 0, 0xa1]);
    }
    let shown = &status(&events).await["controllers"];
    assert_eq!(shown.as_array().unwrap().len(), 1);
    assert_eq!(
        (&shown[0]["id"], &shown[0]["state"], &shown[0]["peer"]),
        (&7.into(), &"connected".into(), &"192.0.2.1:6653".into())
    );
    assert_eq!(
        (&shown[0]["messages_in"], &shown[0]["messages_out"]),
        (&3.into(), &3.into())
    );
    assert_eq!(shown[0]["role"], "equal");

    drop(stream);
    session.await.unwrap();
    let shown = &status(&events).await["controllers"];
    assert_eq!(
        (&shown[0]["id"], &shown[0]["state"]),
        (&serde_json::Value::Null, &"backoff".into())
    );
    assert_eq!(shown[0]["last_error"], "closed by the peer");
    events.send(Event::Stop).unwrap();
    running.await.unwrap();
}

#[tokio::test]
async fn the_state_of_what_is_dialled_is_reported() {
    let (events, queue) = mpsc::unbounded_channel();
    tokio::spawn(engine().run(queue));
    let refused = || "Connection refused".to_owned();
    let connecting = |last_error| (Link::Connecting { last_error }, "connecting");
    let last_error = refused();
    let backoff = (Link::Backoff { last_error }, "backoff");
    for ((link, state), error) in [
        (connecting(None), serde_json::Value::Null),
        (backoff, refused().into()),
        (connecting(Some(refused())), refused().into()),
    ] {
        for dialled in [
            Dialled::Controller(0),
            Dialled::Switch(0, Bridge::Edge),
            Dialled::Controller(9),
            Dialled::Switch(9, Bridge::Virt),
        ] {
            let link = link.clone();
            events.send(Event::Dial { dialled, link }).unwrap();
        }
        let status = status(&events).await;
        let (controller, switch) = (&status["controllers"][0], &status["switches"][0]);
        let shown = (&controller["state"], &controller["last_error"]);
        assert_eq!(shown, (&state.into(), &error));
        let shown = (&switch["edge"]["state"], &switch["edge"]["last_error"]);
        assert_eq!(shown, (&"down".into(), &error));
        assert_eq!(switch["virt"]["last_error"], serde_json::Value::Null);
    }
}

#[tokio::test]
async fn a_bridge_is_up_as_soon_as_its_session_is_and_down_when_it_ends() {
    let (events, queue) = mpsc::unbounded_channel();
    tokio::spawn(engine().run(queue));
    let (mut stream, session) = peer(1, Peer::Switch(0, Bridge::Virt), &events).await;
    // The core asks at once for what it needs.
    let asked = read_message(&mut stream).await;
    assert_eq!(asked[0], 4);
    let shown = status(&events).await;
    assert_eq!(shown["switches"][0]["virt"]["state"], "syncing");
    drop(stream);
    session.await.unwrap();
    let status = status(&events).await;
    let virt = &status["switches"][0]["virt"];
    assert_eq!(
        (&virt["state"], &virt["last_error"]),
        (&"down".into(), &"closed by the peer".into())
    );
}

#[tokio::test]
async fn a_switch_is_silent_when_neither_of_its_bridges_answers() {
    let mut engine = engine();
    let (events, mut queue) = mpsc::unbounded_channel();
    let (_virt, _) = peer(1, Peer::Switch(0, Bridge::Virt), &events).await;
    let (_edge, _) = peer(2, Peer::Switch(0, Bridge::Edge), &events).await;
    let now = StdInstant::now();
    for _ in 0..2 {
        engine.take(queue.recv().await.unwrap(), now);
    }
    for (connection, is_silent, state) in [
        (1, true, "syncing"),
        (2, true, "silent"),
        (1, false, "syncing"),
        (1, true, "silent"),
        (3, false, "silent"),
    ] {
        let silence = Event::Silence {
            connection,
            is_silent,
        };
        engine.take(silence, now);
        let shown = &engine.status().switches[0];
        assert_eq!((shown.virt.state, shown.edge.state), (state, state));
    }
    let (connection, reason) = (2, "no answer".to_owned());
    engine.take(Event::Down { connection, reason }, now);
    let shown = &engine.status().switches[0];
    assert_eq!((shown.virt.state, shown.edge.state), ("syncing", "down"));
}

#[tokio::test]
async fn a_controller_that_lets_64_mib_pile_up_is_cut_off() {
    let (events, mut queue) = mpsc::unbounded_channel();
    let mut engine = engine();
    let (_stream, session) = peer(7, controller(None), &events).await;
    let now = StdInstant::now();
    engine.take(queue.recv().await.unwrap(), now);
    assert_eq!(engine.sessions.len(), 1);
    let to = Destination::Controller(ControllerId(7));
    engine.write(to, vec![0; BACKLOG_LIMIT], now);
    assert_eq!(engine.sessions.len(), 1, "exactly the limit is allowed");
    engine.write(to, vec![0; 8], now);
    assert!(engine.sessions.is_empty());
    let ended = session.await.unwrap();
    assert_eq!(
        ended.reason,
        format!("it does not read: {} bytes are unsent", BACKLOG_LIMIT + 8)
    );
}

#[tokio::test]
async fn bytes_of_and_for_sessions_that_are_gone_go_nowhere() {
    let mut engine = engine();
    let now = StdInstant::now();
    let (connection, bytes, reason) = (3, BytesMut::from(&HELLO[..]), String::new());
    engine.take(Event::Frames { connection, bytes }, now);
    engine.take(Event::Down { connection, reason }, now);
    for destination in [
        Destination::Controller(ControllerId(3)),
        Destination::Switch(0, Bridge::Virt),
        Destination::Switch(9, Bridge::Edge),
    ] {
        engine.write(destination, HELLO.to_vec(), now);
    }
    engine.finish_round(now);
    assert!(engine.sessions.is_empty());
}
