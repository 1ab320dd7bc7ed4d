use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use oneswitch_core::{Counted, OffloadEvent, OffloadRequest};

use super::parse::LINE;
use super::*;
use crate::events::WriterHandle;

const HELLO: &str = r#"{"hello": {"port": 9, "owner": null, "instance": "000000000000000000000000000000ff", "epoch": 7}}"#;

/// A session: the writer's end, the engine's events, and the reason of its end.
struct Fixture {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    events: mpsc::UnboundedReceiver<Event>,
    ended: JoinHandle<String>,
}

impl Fixture {
    fn new() -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (sender, events) = mpsc::unbounded_channel();
        let ended = tokio::spawn(session::Session::new(5, sender).run(ours));
        let (reader, writer) = theirs.into_split();
        Self {
            reader: BufReader::new(reader),
            writer,
            events,
            ended,
        }
    }

    async fn greeted() -> (Self, WriterHandle) {
        let mut fixture = Self::new();
        fixture.write(&format!("{HELLO}\n")).await;
        match fixture.events.recv().await {
            Some(Event::Writer {
                writer: 5,
                hello,
                handle,
            }) => {
                assert_eq!((hello.port, hello.instance, hello.epoch), (9, 255, 7));
                (fixture, handle)
            }
            other => panic!("{other:?}"),
        }
    }

    async fn write(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).await.unwrap();
    }

    async fn read(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).await.unwrap();
        line
    }

    /// The next requests, and the complaint after them.
    async fn lines(&mut self) -> (Vec<OffloadRequest>, Option<String>) {
        match self.events.recv().await {
            Some(Event::WriterLines {
                requests, trouble, ..
            }) => (requests, trouble.map(|trouble| trouble.detail)),
            other => panic!("{other:?}"),
        }
    }

    /// Reads to the end; returns the rest, and the reason of the end.
    async fn end(mut self) -> (String, String) {
        let mut rest = String::new();
        self.reader.read_to_string(&mut rest).await.unwrap();
        (rest, self.ended.await.unwrap())
    }
}

#[tokio::test]
async fn pipelined_lines_are_handed_on_together() {
    let (mut fixture, handle) = Fixture::greeted().await;
    fixture
        .write("{\"alive\": null}\n{\"remove\": 1}\n{\"rem")
        .await;
    let expected = vec![OffloadRequest::Alive, OffloadRequest::Remove(1)];
    assert_eq!(fixture.lines().await, (expected, None));
    fixture.write("ove\": 2}\n").await;
    handle.resume();
    let expected = vec![OffloadRequest::Remove(2)];
    assert_eq!(fixture.lines().await, (expected, None));
}

#[tokio::test]
async fn nothing_is_read_until_the_engine_has_room() {
    let (mut fixture, handle) = Fixture::greeted().await;
    fixture.write("{\"remove\": 1}\n").await;
    fixture.lines().await;
    fixture.write("{\"remove\": 2}\n").await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(fixture.events.try_recv().is_err());
    handle.resume();
    assert_eq!(fixture.lines().await.0, [OffloadRequest::Remove(2)]);
}

#[tokio::test]
async fn events_are_written_in_lines() {
    let (mut fixture, handle) = Fixture::greeted().await;
    let counted = Counted {
        packets: 3,
        bytes: 180,
    };
    let rules: Vec<u64> = (0..900).collect();
    handle.tell(vec![
        OffloadEvent::Welcome,
        OffloadEvent::Carried(vec![(7, counted)]),
        OffloadEvent::Effective(rules),
        OffloadEvent::Listed(Vec::new()),
    ]);
    assert!(fixture.read().await.contains(r#""counts":"exact""#));
    assert_eq!(fixture.read().await, "{\"carried\":[[7,3,180]]}\n");
    for part in 0..2 {
        let line = fixture.read().await;
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        let count = line["effective"].as_array().unwrap().len();
        assert_eq!(count, [800, 100][part]);
    }
    assert_eq!(fixture.read().await, "{\"listed\":[],\"more\":false}\n");
    handle.tell(vec![OffloadEvent::Reset, OffloadEvent::Close]);
    let (rest, reason) = fixture.end().await;
    assert_eq!(
        (rest.as_str(), reason.as_str()),
        ("{\"reset\":null}\n", "turned away")
    );
}

#[tokio::test]
async fn the_first_line_must_be_hello() {
    for (line, complaint) in [
        ("{\"list\": null}\n", "expected hello"),
        ("GET / HTTP/1.1\r\n", "expected value"),
    ] {
        let mut fixture = Fixture::new();
        fixture.write(line).await;
        let answer = fixture.read().await;
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["error"]["code"], "malformed");
        let detail = answer["error"]["detail"].as_str().unwrap();
        assert!(detail.contains(complaint), "{detail}");
        assert_eq!(fixture.end().await.1, "turned away");
    }
}

#[tokio::test]
async fn a_bad_line_ends_the_lines_before_it() {
    for (line, complaint) in [
        (format!("{HELLO}\n"), "second hello"),
        ("\u{fffd}\n".into(), "expected value"),
        (
            format!("{}\n", "x".repeat(LINE + 1)),
            "expected at most 65536",
        ),
        ("x".repeat(LINE + 1), "expected at most 65536"),
    ] {
        let (mut fixture, handle) = Fixture::greeted().await;
        fixture.write("{\"remove\": 1}\n").await;
        let (mut requests, mut trouble) = fixture.lines().await;
        fixture.write(&line).await;
        while trouble.is_none() {
            handle.resume();
            let (more, found) = fixture.lines().await;
            (requests, trouble) = ([requests, more].concat(), found);
        }
        assert_eq!(requests, [OffloadRequest::Remove(1)]);
        let trouble = trouble.unwrap();
        assert!(trouble.contains(complaint), "{trouble}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_does_not_read_is_disconnected() {
    let (fixture, handle) = Fixture::greeted().await;
    let rules: Vec<u64> = (0..100_000).map(|n| u64::MAX / 2 + n).collect();
    handle.tell(vec![OffloadEvent::Installed(rules.clone())]);
    let reason = fixture.ended.await.unwrap();
    assert!(reason.contains("read nothing for 5 seconds"), "{reason}");

    let (fixture, handle) = Fixture::greeted().await;
    for _ in 0..6 {
        handle.tell(vec![OffloadEvent::Installed(rules.clone())]);
    }
    let reason = fixture.ended.await.unwrap();
    assert!(reason.contains("bytes are unsent"), "{reason}");
}

#[tokio::test]
async fn the_number_of_clients_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("offload.sock");
    let (sender, _events) = mpsc::unbounded_channel();
    let server = tokio::spawn(Server::bind(&path, sender).unwrap().run());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(UnixStream::connect(&path).await.unwrap());
    }
    let mut last = UnixStream::connect(&path).await.unwrap();
    let mut answer = String::new();
    last.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("too-many-clients"), "{answer}");
    server.abort();
}
