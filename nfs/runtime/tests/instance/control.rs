//! The control socket, with well-behaved and misbehaving clients.

use std::{
    io::{self, BufRead, BufReader, IoSlice, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    thread,
    time::Duration,
};

use nf_runtime::control::{serve, serve_while_busy, Reply, Server, Verbs, MAX_LINE};
use rustix::net::{
    sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde_json::{json, Value};

use crate::support::{Config, Rig, SOON};

struct Served {
    rig: Rig,
    _server: Server,
    directory: tempfile::TempDir,
}

impl Served {
    fn new() -> Self {
        Self::to_clients(SOON)
    }

    /// Serves with this idle timeout.
    fn to_clients(idle: Duration) -> Self {
        let rig = Rig::new(1, Config::default());
        let mut verbs = Verbs::of(&rig.instance);
        // Returns the request's descriptors.
        verbs.add("pass", |request| {
            Ok(Reply {
                value: json!({ "count": request.descriptors.len() }),
                descriptors: request.descriptors,
                then: None,
            })
        });
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nf.sock");
        let server = serve_while_busy(&path, verbs, idle).unwrap();
        Self {
            rig,
            _server: server,
            directory,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("nf.sock")
    }

    fn client(&self) -> Client {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Client(BufReader::new(stream))
    }
}

struct Client(BufReader<UnixStream>);

impl Client {
    fn raw(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, request: &Value) -> Value {
        self.raw(format!("{request}\n").as_bytes());
        self.answer()
    }
}

#[test]
fn every_verb_is_answered() {
    let served = Served::new();
    let mut client = served.client();
    served.rig.wires[0][0].send(b"a");
    served.rig.out(1, 0);
    let status = client.ask(&json!({ "do": "status" }))["ok"].clone();
    assert_eq!(
        (&status["kind"], &status["mode"]),
        (&json!("echo"), &json!("run"))
    );
    assert_eq!(status["ports"][1]["mac"], "02:00:00:00:00:01");
    assert_eq!(client.ask(&json!({ "do": "counters" }))["ok"]["seen"], 1);
    let pauses = client.ask(&json!({ "do": "pauses" }))["ok"].clone();
    let age = pauses["age_us"].as_u64().unwrap();
    let lasts = pauses["pauses_us"].as_array().unwrap().last().cloned();
    assert!(lasts.is_none_or(|pause| pause[0].as_u64().unwrap() <= age && pause[1].is_null()));
    let text = client.ask(&json!({ "do": "metrics" }))["ok"]["text"].clone();
    assert!(text
        .as_str()
        .unwrap()
        .contains("nf_seen{kind=\"echo\"} 1\n"));
    let configure = json!({ "do": "configure", "config": { "ticks": true } });
    assert_eq!(client.ask(&configure), json!({ "ok": {} }));
    assert_eq!(served.rig.out(1, 0), b"first tick");
    let config = json!({ "ok": { "config": { "ticks": true, "refuse": false } } });
    assert_eq!(client.ask(&json!({ "do": "config" })), config);
    assert_eq!(
        client.ask(&json!({ "do": "echo.say", "word": 7 })),
        json!({ "ok": { "said": 7 } })
    );
    assert_eq!(client.ask(&json!({ "do": "stop" })), json!({ "ok": {} }));
    served.rig.instance.wait().unwrap();
}

#[test]
fn refusals_name_the_fault_and_change_nothing() {
    let served = Served::new();
    let mut client = served.client();
    for (request, code, detail) in [
        (
            json!({ "do": "dance" }),
            "verb-unknown",
            "unknown verb \"dance\"; expected one of config, configure, counters, metrics, pass, pauses, status, stop",
        ),
        (
            json!({ "do": "echo.dance" }),
            "verb-unknown",
            "unknown verb \"echo.dance\"",
        ),
        (
            json!({ "do": "other.say" }),
            "verb-unknown",
            "unknown verb \"other.say\"",
        ),
        (
            json!({ "do": "configure" }),
            "malformed",
            "\"config\" is missing",
        ),
        (
            json!({ "do": "configure", "config": { "tocks": 1 } }),
            "configuration",
            "unknown field `tocks`",
        ),
        (
            json!({ "do": "configure", "config": { "refuse": true } }),
            "configuration",
            "refuse: is true",
        ),
        (json!("status"), "malformed", "not a JSON object"),
    ] {
        let error = client.ask(&request)["error"].clone();
        assert_eq!(error["code"], code, "{error}");
        assert!(
            error["detail"].as_str().unwrap().contains(detail),
            "{error}"
        );
    }
    assert_eq!(
        client.ask(&json!({ "do": "config" }))["ok"]["config"]["refuse"],
        false
    );
}

#[test]
fn partial_multiple_and_endless_lines() {
    let served = Served::new();
    let mut client = served.client();
    client.raw(b"{\"do\": \"con");
    client.raw(b"fig\"}\n{\"do\": \"config\"}\nnonsense\n");
    for expected in ["ok", "ok", "error"] {
        assert!(client.answer().get(expected).is_some());
    }
    served.client().raw(b"{\"do\": ");
    // The server refuses it before it is complete, and closes: the write fails then.
    let mut endless = served.client();
    let mut writer = endless.0.get_ref().try_clone().unwrap();
    let written =
        thread::spawn(move || (0..10).try_for_each(|_| writer.write_all(&vec![b'x'; 1 << 20])));
    let error = endless.answer()["error"].clone();
    assert_eq!(error["code"], "line-too-long");
    assert!(error["detail"]
        .as_str()
        .unwrap()
        .contains(&MAX_LINE.to_string()));
    assert_eq!(endless.0.read(&mut [0; 8]).unwrap_or(0), 0);
    drop(endless);
    let _: io::Result<()> = written.join().unwrap();
    assert!(client.ask(&json!({ "do": "status" })).get("ok").is_some());
}

#[test]
fn clients_are_concurrent_and_limited_in_number() {
    let served = Served::new();
    let mut clients: Vec<Client> = (0..32).map(|_| served.client()).collect();
    for client in &mut clients {
        assert!(client.ask(&json!({ "do": "status" })).get("ok").is_some());
    }
    assert_eq!(
        served.client().answer()["error"]["code"],
        "too-many-clients"
    );
    // A client that requests a lot without reading does not slow the others.
    let mut slow = clients.pop().unwrap();
    slow.0.get_ref().set_nonblocking(true).unwrap();
    while slow
        .0
        .get_mut()
        .write_all(&b"{\"do\": \"status\"}\n".repeat(1000))
        .is_ok()
    {}
    assert!(clients[0]
        .ask(&json!({ "do": "status" }))
        .get("ok")
        .is_some());
}

#[test]
fn silent_clients_are_disconnected() {
    let served = Served::to_clients(Duration::from_millis(200));
    let clients: Vec<Client> = (0..32).map(|_| served.client()).collect();
    for mut client in clients {
        let end = client.0.read_to_end(&mut Vec::new());
        assert!(matches!(end, Ok(0)), "{end:?}");
    }
    let answer = served.client().ask(&json!({ "do": "status" }));
    assert!(answer.get("ok").is_some(), "{answer}");
}

#[test]
fn descriptors_pass_both_ways_with_their_line() {
    let served = Served::new();
    let client = UnixStream::connect(served.path()).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    let file = tempfile::tempfile().unwrap();
    (&file).write_all(b"here").unwrap();
    for (count, expected) in [
        (1, "{\"ok\":{\"count\":1}}\n"),
        (8, "{\"ok\":{\"count\":8}}\n"),
        (9, "{\"error\":"),
    ] {
        let line = [IoSlice::new(b"{\"do\": \"pass\"}\n")];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(9))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = vec![file.as_fd(); count];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(&client, &line, &mut control, SendFlags::empty()).unwrap();
        let mut answer = [0; 300];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [io::IoSliceMut::new(&mut answer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let length = rustix::net::recvmsg(&client, &mut buffers, &mut control, flags)
            .unwrap()
            .bytes;
        let text = String::from_utf8_lossy(&answer[..length]).into_owned();
        assert!(text.starts_with(expected), "{text}");
        let mut received: Vec<OwnedFd> = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                received.extend(descriptors);
            }
        }
        assert_eq!(received.len(), if count > 8 { 0 } else { count });
        for descriptor in received {
            let same = rustix::fs::fstat(&descriptor).unwrap().st_ino
                == rustix::fs::fstat(&file).unwrap().st_ino;
            assert!(same);
        }
    }
}

#[test]
fn a_stale_socket_is_replaced_and_a_served_one_is_not() {
    let served = Served::new();
    let refusal = serve(&served.path(), Verbs::default()).err().unwrap();
    assert!(
        refusal.detail.contains("another process serves it"),
        "{refusal}"
    );
    let left = served.directory.path().join("left.sock");
    drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
    let server = serve(&left, Verbs::default()).unwrap();
    UnixStream::connect(&left).unwrap();
    drop(server);
    assert!(!left.exists());
    let mode = std::os::unix::fs::MetadataExt::mode(&served.path().metadata().unwrap());
    assert_eq!(mode & 0o777, 0o600);
}
