//! The access log, and the numbers of routes and backends.

use std::path::PathBuf;

use nf_l7lb::Config;
use serde_json::{json, Value};

use crate::{
    peers::{self, Bed, Flags, Peer, A, CLIENT},
    with_address, GET, OK,
};

/// A file of one test, removed at its end.
struct LogFile(PathBuf);

impl LogFile {
    fn new(test: &str) -> Self {
        let name = format!("l7lb-{test}-{}.json", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn config(&self, sample: f64) -> Config {
        let mut config = peers::config(json!({}));
        let log = json!({"path": self.0, "sample": sample});
        config.log = serde_json::from_value(log).unwrap();
        config
    }

    /// Ends the load balancers, which write what waits, and reads the lines.
    fn read<const COUNT: usize>(&self, beds: [Bed; COUNT]) -> Vec<Value> {
        drop(beds);
        let text = std::fs::read_to_string(&self.0).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn asked(bed: &mut Bed, port: u16, request: &str) -> (Peer, Peer) {
    let mut client = bed.client(port);
    client.say(bed, request);
    let mut backend = bed.backend(A);
    let found = bed.one(A);
    assert_eq!(backend.hear(&found), with_address(request));
    (client, backend)
}

fn answered(bed: &mut Bed, client: &mut Peer, backend: &mut Peer, answer: &str) {
    backend.say(bed, answer);
    client.hear(&bed.one(CLIENT));
    client.send(bed, Flags::Ack, b"");
    bed.sent.clear();
}

/// Compares some members of an object.
fn has(line: &Value, expected: &Value) {
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&line[key], value, "{key} of {line}");
    }
}

#[test]
fn a_line_describes_a_request_and_its_answer() {
    let file = LogFile::new("describes");
    let mut bed = Bed::of(file.config(1.0));
    let request =
        "POST /x/y?secret=1 HTTP/1.1\r\nHost: Web.example:80\r\nContent-Length: 4\r\n\r\n";
    let (mut client, mut backend) = asked(&mut bed, 7, request);
    bed.lb.advance(3_000_000);
    client.say(&mut bed, "body");
    backend.hear(&bed.one(A));
    bed.lb.advance(4_000_000);
    backend.say(&mut bed, &OK[..OK.len() - 2]);
    client.hear(&bed.one(CLIENT));
    bed.lb.advance(5_500_000);
    backend.say(&mut bed, &OK[OK.len() - 2..]);
    let lines = file.read([bed]);
    assert_eq!(lines.len(), 1);
    has(
        &lines[0],
        &json!({
            "client": "10.0.0.1", "client_port": 7, "listener": "web", "route": "a", "pool": "a", "backend": "one",
            "method": "POST", "path": "/x/y", "host": "Web.example", "status": 200,
            "bytes_in": request.len() + 4, "bytes_out": OK.len(),
            "first_ms": 7.0, "duration_ms": 12.5, "end": "done",
        }),
    );
    let time = lines[0]["time"].as_str().unwrap();
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
}

#[test]
fn own_answers_and_failures_are_logged_whatever_the_sample() {
    let file = LogFile::new("failures");
    let mut bed = Bed::of(file.config(0.0));
    let (mut client, mut backend) = asked(&mut bed, 1, GET);
    answered(&mut bed, &mut client, &mut backend, OK);
    client.say(&mut bed, "GET /ping HTTP/1.1\r\nHost: web\r\n\r\n");
    bed.sent.clear();
    bed.client(2).say(&mut bed, "NONSENSE\r\n\r\n");
    bed.sent.clear();
    let (_client, mut backend) = asked(&mut bed, 3, GET);
    backend.send(&mut bed, Flags::Refuse, b"");
    bed.sent.clear();
    let (client, mut backend) = asked(&mut bed, 4, GET);
    backend.say(&mut bed, &OK[..OK.len() - 2]);
    let mut client = client;
    client.send(&mut bed, Flags::Rst, b"");
    bed.sent.clear();
    let (_client, _backend) = asked(&mut bed, 5, GET);
    bed.wait(60_100);
    let lines = file.read([bed]);
    let found: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                line["status"].as_u64(),
                line["end"].as_str().unwrap(),
                line["path"].as_str(),
            )
        })
        .collect();
    let expected = [
        (Some(200), "answered", Some("/ping")),
        (Some(400), "refused", None),
        (Some(502), "backend reset", Some("/x")),
        (Some(200), "client left", Some("/x")),
        (Some(504), "timed out", Some("/x")),
    ];
    assert_eq!(found, expected);
    has(
        &lines[1],
        &json!({"route": null, "listener": "web", "first_ms": null}),
    );
    has(&lines[3], &json!({"bytes_out": OK.len() - 2}));
}

#[test]
fn a_sample_of_the_requests_is_logged_also_after_a_move() {
    let file = LogFile::new("sample");
    let mut bed = Bed::of(file.config(0.5));
    let (mut client, mut backend) = asked(&mut bed, 1, GET);
    answered(&mut bed, &mut client, &mut backend, OK);
    for _ in 0..5 {
        client.say(&mut bed, GET);
        backend.hear(&bed.one(A));
        answered(&mut bed, &mut client, &mut backend, OK);
    }
    client.say(&mut bed, GET);
    backend.hear(&bed.one(A));
    let mut config = file.config(1.0);
    let other = LogFile::new("sample-moved");
    config.log.as_mut().unwrap().path = other.0.to_str().unwrap().to_owned();
    let mut moved = bed.moved_with(config);
    answered(&mut moved, &mut client, &mut backend, OK);
    let lines = other.read([moved]);
    assert_eq!(file.read([]).len(), 3);
    assert_eq!(lines.len(), 1);
    has(
        &lines[0],
        &json!({"method": "GET", "path": "/x", "host": "web", "backend": "one"}),
    );
}

#[test]
fn routes_and_backends_have_numbers() {
    let mut bed = Bed::new();
    let (mut client, mut backend) = asked(&mut bed, 1, GET);
    answered(&mut bed, &mut client, &mut backend, OK);
    client.say(&mut bed, GET);
    backend.hear(&bed.one(A));
    bed.lb.advance(30_000_000);
    let missing = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    answered(&mut bed, &mut client, &mut backend, missing);
    client.say(&mut bed, "GET /ping HTTP/1.1\r\nHost: web\r\n\r\n");
    client.hear(&bed.one(CLIENT));
    let mut bed = bed.moved();
    let route = |name: &str, route: &str, more: &str| {
        format!("route_{name}{{listener=\"web\",route=\"{route}\"{more}}}")
    };
    let backend_of =
        |name: &str, more: &str| format!("backend_{name}{{pool=\"a\",backend=\"one\"{more}}}");
    for (name, value) in [
        (route("requests", "a", ""), 2),
        (route("answers", "a", ",class=\"2xx\""), 1),
        (route("answers", "a", ",class=\"4xx\""), 1),
        (route("answers", "a", ",class=\"5xx\""), 0),
        (route("own_answers", "a", ""), 0),
        (route("duration_seconds_bucket", "a", ",le=\"0.001\""), 1),
        (route("duration_seconds_bucket", "a", ",le=\"0.025\""), 1),
        (route("duration_seconds_bucket", "a", ",le=\"0.05\""), 2),
        (route("duration_seconds_count", "a", ""), 2),
        (route("requests", "ping", ""), 1),
        (route("own_answers", "ping", ""), 1),
        (route("requests", "b", ""), 0),
        (backend_of("requests", ""), 2),
        (backend_of("answers", ",class=\"4xx\""), 1),
        (backend_of("duration_seconds_bucket", ",le=\"+Inf\""), 2),
    ] {
        assert_eq!(bed.counter(&name), value, "{name}");
    }
    client.say(&mut bed, GET);
    backend.hear(&bed.one(A));
    backend.send(&mut bed, Flags::Ack, b"");
    backend.send(&mut bed, Flags::Refuse, b"");
    assert_eq!(bed.counter(&backend_of("own_answers", "")), 1);
}

#[test]
fn a_log_that_cannot_be_written_is_refused() {
    let mut config = peers::config(json!({}));
    config.log = serde_json::from_value(json!({"path": "/nowhere/l7lb.json"})).unwrap();
    let refusal = nf_runtime::testing::Harness::<nf_l7lb::L7lb>::new(config);
    let text = refusal.err().unwrap().to_string();
    assert!(
        text.contains("log.path") && text.contains("\"/nowhere/l7lb.json\""),
        "{text}"
    );
}
