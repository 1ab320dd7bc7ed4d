//! Controllers that do not read, or read slowly.

use super::*;
use crate::engine::intake::SWITCH_BACKLOG;
use openflow13::{encode, ActionList, FlowMod, FlowModCommand, Instructions, Match, Message};

/// Bytes of a rule's actions, which nearly fill a message.
const ACTIONS: u16 = 60_000;
const ANY: u32 = u32::MAX;

fn long_rule(number: u16) -> Vec<u8> {
    // One action, which is quick to parse: NXAST_NOTE.
    let [high, low] = ACTIONS.to_be_bytes();
    let mut note = vec![0xff, 0xff, high, low, 0, 0, 0x23, 0x20, 0, 8];
    note.resize(ACTIONS.into(), 0);
    let actions = ActionList::from_bytes(note).unwrap();
    let message = FlowMod {
        cookie: number.into(),
        out_port: ANY,
        out_group: ANY,
        instructions: Instructions::apply(&actions),
        ..FlowMod::new(
            FlowModCommand::Add,
            0,
            1,
            Match::any().with_vlan_vid(number),
        )
    };
    encode(1, &Message::FlowMod(message)).unwrap()
}

/// Builds a request for all flow statistics.
fn dump_request() -> Vec<u8> {
    let mut frame = vec![4, kind::MULTIPART_REQUEST, 0, 56];
    frame.extend([0, 0, 0, 9, 0, 1, 0, 0, 0, 0, 0, 0]);
    frame.extend([0xff, 0, 0, 0]); // all tables
    frame.extend([0xff; 8]); // any port and group
    frame.extend([0; 20]);
    frame.extend([0, 1, 0, 4, 0, 0, 0, 0]); // any match
    frame
}

#[tokio::test]
async fn a_dump_longer_than_what_may_pile_up_is_read_to_its_end() {
    let (events, queue) = mpsc::unbounded_channel();
    let running = tokio::spawn(engine().run(queue));
    let (mut stream, _session) = peer(7, controller(None), &events).await;
    let rules = u16::try_from(BACKLOG_LIMIT / usize::from(ACTIONS) + 1).unwrap();
    for number in 0..rules {
        stream.write_all(&long_rule(number)).await.unwrap();
    }
    stream.write_all(&dump_request()).await.unwrap();
    let mut bytes = 0;
    for number in 1..=rules {
        let part = read_message(&mut stream).await;
        assert_eq!((part[1], part[7]), (kind::MULTIPART_REPLY, 9));
        assert_eq!(part[11] & 1 == 1, number < rules, "one rule per message");
        bytes += part.len();
    }
    assert!(bytes > BACKLOG_LIMIT, "{bytes}");
    assert_eq!(status(&events).await["controllers"][0]["id"], 7);
    events.send(Event::Stop).unwrap();
    running.await.unwrap();
}

#[tokio::test]
async fn a_controller_that_reads_no_packet_ins_stays_connected_and_loses_them() {
    let (events, queue) = mpsc::unbounded_channel();
    let running = tokio::spawn(engine().run(queue));
    let (mut controller, _session) = peer(7, controller(None), &events).await;
    let (mut switch, _session) = peer(1, Peer::Switch(0, Bridge::Virt), &events).await;
    let mut packet_in = vec![0; 60_000];
    packet_in[..4].copy_from_slice(&[4, kind::PACKET_IN, 0xea, 0x60]);
    let count = BACKLOG_LIMIT / packet_in.len() + 20;
    for _ in 0..count {
        switch.write_all(&packet_in).await.unwrap();
    }
    // The answer comes after all of them.
    let echo = [4, kind::ECHO_REQUEST, 0, 8, 0, 0, 0, 77];
    switch.write_all(&echo).await.unwrap();
    while read_message(&mut switch).await[..2] != [4, kind::ECHO_REPLY] {}
    let status = status(&events).await;
    let shown = &status["controllers"][0];
    assert_eq!(shown["id"], 7);
    let dropped = shown["packet_ins_dropped"].as_u64().unwrap() as usize;
    assert!(
        (count / 2..count).contains(&dropped),
        "{dropped} of {count}"
    );
    // It receives the others.
    for _ in dropped..count {
        assert_eq!(read_message(&mut controller).await[1], kind::PACKET_IN);
    }
    events.send(Event::Stop).unwrap();
    running.await.unwrap();
}

#[tokio::test]
async fn replies_to_one_chunk_do_not_pile_up() {
    let desc = [[4, kind::MULTIPART_REQUEST, 0, 16], [0; 4], [0; 4], [0; 4]].concat();
    let (events, mut queue) = mpsc::unbounded_channel();
    let mut engine = engine();
    let (mut stream, _session) = peer(7, controller(None), &events).await;
    let now = StdInstant::now();
    engine.take(queue.recv().await.unwrap(), now);
    let count = 8_000;
    let mut chunk = BytesMut::new();
    for xid in 0..count {
        chunk.extend_from_slice(&desc);
        let start = chunk.len() - desc.len();
        chunk[start + 4..start + 8].copy_from_slice(&u32::to_be_bytes(xid));
    }
    let (connection, bytes) = (7, chunk);
    engine.take(Event::Frames { connection, bytes }, now);
    engine.finish_round(now);
    let backlog = engine.sessions[&7].handle.backlog();
    assert!((1 << 20..2 << 20).contains(&backlog), "{backlog}");
    let running = tokio::spawn(engine.run(queue));
    for xid in 0..count {
        assert_eq!(read_message(&mut stream).await[4..8], u32::to_be_bytes(xid));
    }
    let status = status(&events).await;
    assert_eq!(status["controllers"][0]["messages_in"], count);
    events.send(Event::Stop).unwrap();
    running.await.unwrap();
}

#[tokio::test]
async fn controllers_are_not_read_while_a_switch_does_not_read() {
    /// More than the limit, plus the stream's own buffer.
    const UNREAD: usize = SWITCH_BACKLOG + (2 << 20);
    let (events, mut queue) = mpsc::unbounded_channel();
    let mut engine = engine();
    let (mut stream, _session) = peer(7, controller(None), &events).await;
    let (mut switch, _session) = peer(1, Peer::Switch(0, Bridge::Virt), &events).await;
    let now = StdInstant::now();
    for _ in 0..2 {
        engine.take(queue.recv().await.unwrap(), now);
    }
    engine.write(Destination::Switch(0, Bridge::Virt), vec![0; UNREAD], now);
    for xid in [1, 2] {
        let request = [4, kind::FEATURES_REQUEST, 0, 8, 0, 0, 0, xid];
        stream.write_all(&request).await.unwrap();
    }
    engine.take(queue.recv().await.unwrap(), now);
    engine.finish_round(now);
    assert_eq!(engine.paused, [7u64], "it was not told to go on");
    let mut rest = vec![0; UNREAD];
    switch.read_exact(&mut rest).await.unwrap();
    while engine.a_switch_does_not_read() {
        tokio::task::yield_now().await;
    }
    engine.finish_round(now);
    assert!(engine.paused.is_empty());
}
