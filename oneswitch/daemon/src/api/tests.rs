use std::path::PathBuf;
use std::time::Instant;

use serde_json::{json, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;

use super::*;
use crate::engine::{Engine, Report};
use crate::log::Level;
use crate::state::{Saver, StateFile};

const SERVER: &str = r#"
[oneswitchd]
datapath_id = "00000000000000a1"
listen = ["ptcp:6653"]
controllers = ["tcp:192.0.2.1"]
api = "API"
state = "STATE"
[[switch]]
name = "hypervisor"
virt = "unix:/v"
edge = "unix:/e"
[[switch]]
name = "snic0"
virt = "unix:/v0"
edge = "unix:/e0"
link = { hypervisor = "pcie-snic0", local = "pf0hpf" }
[[port]]
number = 1
switch = "hypervisor"
interface = "vm1"
[[port]]
number = 2
switch = "snic0"
interface = "pf0vf0"
"#;

const JSON: &str = "Content-Type: application/json; charset=utf-8\r\n";

/// The API over the real engine and core, with no switch connected.
struct Fixture {
    folder: tempfile::TempDir,
    endpoint: ApiEndpoint,
    tasks: Vec<JoinHandle<()>>,
}

struct Response {
    status: u16,
    head: String,
    body: Value,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let api = format!("unix:{}", folder.path().join("api.sock").display());
        Self::with_api(folder, &api).await
    }

    async fn with_api(folder: tempfile::TempDir, api: &str) -> Self {
        let state = folder.path().join("ports.json").display().to_string();
        let text = SERVER
            .replace(
                "\"API\"",
                api.strip_prefix("raw ").unwrap_or(&format!("\"{api}\"")),
            )
            .replace("STATE", &state);
        let config = Config::parse("server.toml", &text).unwrap();
        let (events, queue) = mpsc::unbounded_channel();
        let server = Server::bind(&config, Levels::new(Level::Info), events)
            .await
            .unwrap();
        let core = crate::server::build_core(&config, Instant::now()).unwrap();
        let report = Report::new(
            &config,
            vec!["ptcp:6653:0.0.0.0".into()],
            server.endpoint.to_string(),
            Instant::now(),
        );
        let (saver, saving) = Saver::new(StateFile::new(&config).unwrap());
        let endpoint = server.endpoint.clone();
        let tasks = vec![
            tokio::spawn(saving),
            tokio::spawn(Engine::new(core, report, Some(saver)).run(queue)),
            tokio::spawn(server.run()),
        ];
        Self {
            folder,
            endpoint,
            tasks,
        }
    }

    /// Sends bytes as they are and reads the answer.
    async fn raw(&self, request: &[u8]) -> Response {
        let mut answer = Vec::new();
        match &self.endpoint {
            ApiEndpoint::Unix(path) => {
                let stream = UnixStream::connect(path).await.unwrap();
                exchange(stream, request, &mut answer).await;
            }
            ApiEndpoint::Tcp(address) => {
                let stream = TcpStream::connect(address).await.unwrap();
                exchange(stream, request, &mut answer).await;
            }
        }
        let text = String::from_utf8(answer).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = if body.is_empty() {
            Value::Null
        } else if head.to_ascii_lowercase().contains("text/plain") {
            body.into()
        } else {
            serde_json::from_str(body).unwrap()
        };
        Response {
            status,
            head: head.to_ascii_lowercase(),
            body,
        }
    }

    async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Response {
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n");
        self.raw(format!("{head}{body}").as_bytes()).await
    }

    async fn get(&self, path: &str) -> Response {
        self.send("GET", path, "", "").await
    }

    async fn json(&self, method: &str, path: &str, body: Value) -> Response {
        self.send(method, path, JSON, &body.to_string()).await
    }

    /// Sends requests and checks their refusals, one a line: "METHOD PATH BODY => STATUS CODE".
    async fn refuses(&self, cases: &str) {
        for case in cases.trim().lines() {
            println!("{case}");
            let (request, expected) = case.trim().split_once(" => ").unwrap();
            let (method, rest) = request.split_once(' ').unwrap();
            let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
            let (status, code) = expected.split_once(' ').unwrap();
            let refused = self.send(method, path, JSON, body).await;
            Self::refused(&refused, status.parse().unwrap(), code);
        }
    }

    /// Checks that a refused request is a problem document.
    fn refused(response: &Response, status: u16, code: &str) -> String {
        assert_eq!(
            (response.status, response.body["code"].as_str()),
            (status, Some(code)),
            "{}",
            response.body
        );
        assert!(
            response
                .head
                .contains("content-type: application/problem+json"),
            "{}",
            response.head
        );
        assert_eq!(response.body["status"], status);
        assert_eq!(response.body["type"], "about:blank");
        assert!(!response.body["title"].as_str().unwrap().is_empty());
        response.body["detail"].as_str().unwrap().to_owned()
    }

    fn state(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.folder.path().join("ports.json")).unwrap())
            .unwrap()
    }
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &[u8],
    answer: &mut Vec<u8>,
) {
    // A server that refuses a body unread may close the connection before the body is written.
    let _ = stream.write_all(request).await;
    let _ = stream.read_to_end(answer).await;
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[tokio::test]
async fn the_status_has_every_field_of_the_contract() {
    let fixture = Fixture::new().await;
    let status = fixture.get("/v1/status").await;
    assert_eq!(status.status, 200);
    assert!(status.head.contains("content-type: application/json"));
    let body = status.body;
    assert_eq!(body["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(body["datapath_id"], "00000000000000a1");
    assert_eq!(body["listen"], json!(["ptcp:6653:0.0.0.0"]));
    assert_eq!(body["api"], fixture.endpoint.to_string());
    assert!(body["uptime_s"].is_u64() && body["refused"].is_u64());
    let controller = json!({"id": null, "target": "tcp:192.0.2.1:6653", "peer": "", "state": "connecting", "role": null,
                            "messages_in": 0, "messages_out": 0, "packet_ins_dropped": 0, "last_error": null});
    assert_eq!(body["controllers"], json!([controller]));
    let bridge = |target: &str| json!({"target": target, "state": "down", "last_error": null});
    let counters = [
        "physical_flows",
        "physical_groups",
        "physical_meters",
        "edge_flows",
        "repairs",
    ];
    for (index, (name, link)) in [
        ("hypervisor", Value::Null),
        (
            "snic0",
            json!({"hypervisor": "pcie-snic0", "local": "pf0hpf", "state": "down", "type": null,
                   "reason": "pcie-snic0 of hypervisor is not known, pf0hpf of snic0 is not known"}),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let switch = &body["switches"][index];
        assert_eq!(
            (&switch["name"], &switch["hub"], &switch["link"]),
            (&json!(name), &json!(index == 0), &link)
        );
        assert_eq!(switch["virt"], bridge(["unix:/v", "unix:/v0"][index]));
        assert_eq!(switch["edge"], bridge(["unix:/e", "unix:/e0"][index]));
        assert!(switch["misses"].is_null());
        assert!(
            counters.iter().all(|counter| switch[counter].is_u64()),
            "{switch}"
        );
    }
    assert_eq!(body["virtual"]["ports"], 2);
    assert_eq!(body["offload"], json!([]));
    assert!(body["virtual"]["executors"].is_array());
}

#[tokio::test]
async fn who_waits_in_vain_gets_the_status_as_it_is() {
    let fixture = Fixture::new().await;
    let answer = fixture.get("/v1/status?wait=up&timeout_s=0.01").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body["switches"][0]["virt"]["state"], "down");
    let refused = fixture.get("/v1/status?wait=down").await;
    Fixture::refused(&refused, 400, "malformed");
}

#[tokio::test]
async fn an_audit_does_not_wait_for_disconnected_bridges() {
    let fixture = Fixture::new().await;
    let answer = fixture.send("POST", "/v1/audit", "", "").await;
    assert_eq!(
        (answer.status, answer.body.as_array().unwrap().len()),
        (200, 4)
    );
    let expected = json!({"switch": "snic0", "bridge": "edge", "state": "down", "audited": false, "found": null});
    assert_eq!(answer.body[3], expected);
}

#[tokio::test]
async fn the_metrics_are_prometheus_text() {
    let api = Fixture::new().await;
    let response = api.get("/metrics").await;
    assert_eq!(response.status, 200);
    assert!(response
        .head
        .contains("content-type: text/plain; version=0.0.4"));
    let page = response.body.as_str().unwrap();
    assert!(page.contains("# TYPE oneswitch_virtual_ports gauge\noneswitch_virtual_ports 2\n"));
    assert!(page.contains("oneswitch_bridge_up{switch=\"snic0\",bridge=\"edge\"} 0\n"));
    assert!(page
        .contains("oneswitch_controller_connected{target=\"tcp:192.0.2.1:6653\",peer=\"\"} 0\n"));
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(
            name.starts_with("oneswitch_") && value.parse::<u64>().is_ok(),
            "{line}"
        );
    }
}

mod ports;
mod requests;
