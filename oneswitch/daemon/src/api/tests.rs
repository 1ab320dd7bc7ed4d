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
                exchange(
                    UnixStream::connect(path).await.unwrap(),
                    request,
                    &mut answer,
                )
                .await
            }
            ApiEndpoint::Tcp(address) => {
                exchange(
                    TcpStream::connect(address).await.unwrap(),
                    request,
                    &mut answer,
                )
                .await
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
        self.send(
            method,
            path,
            "Content-Type: application/json; charset=utf-8\r\n",
            &body.to_string(),
        )
        .await
    }

    /// A refused request is a problem document, whatever is wrong.
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
    // A server that refuses a body unread may close before it is written.
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
                            "messages_in": 0, "messages_out": 0, "last_error": null});
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
            json!({"hypervisor": "pcie-snic0", "local": "pf0hpf", "state": "down"}),
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
        assert!(
            counters.iter().all(|counter| switch[counter].is_u64()),
            "{switch}"
        );
    }
    assert_eq!(body["virtual"]["ports"], 2);
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

#[tokio::test]
async fn ports_are_listed_and_found() {
    let fixture = Fixture::new().await;
    let ports = fixture.get("/v1/ports").await;
    assert_eq!(ports.status, 200);
    let first = &ports.body[0];
    assert_eq!(ports.body.as_array().unwrap().len(), 2);
    assert_eq!(
        (
            &first["number"],
            &first["name"],
            &first["switch"],
            &first["interface"]
        ),
        (
            &json!(1),
            &json!("vm1"),
            &json!("hypervisor"),
            &json!("vm1")
        )
    );
    assert_eq!(
        (
            &first["state"],
            &first["config"],
            &first["mac"],
            &first["move"]
        ),
        (&json!("down"), &json!([]), &Value::Null, &Value::Null)
    );
    assert!(
        first["reason"].as_str().unwrap().contains("hypervisor"),
        "{first}"
    );
    assert!(first["flow_id"].as_u64().unwrap() > 0);
    assert_eq!(
        (
            &first["executor"],
            &first["executes_at"],
            &first["ingress_id"]
        ),
        (&json!("home"), &json!("hypervisor"), &Value::Null)
    );
    assert_eq!(&fixture.get("/v1/ports/1").await.body, first);
    for unknown in ["7", "abc", "-1", "99999999999", ""] {
        let refused = fixture.get(&format!("/v1/ports/{unknown}")).await;
        let detail = Fixture::refused(&refused, 404, "port-unknown");
        assert!(detail.contains(unknown), "{detail}");
    }
}

#[tokio::test]
async fn a_deleted_port_is_gone_from_the_file_before_the_answer() {
    let fixture = Fixture::new().await;
    let gone = fixture.send("DELETE", "/v1/ports/2", "", "").await;
    assert_eq!((gone.status, gone.body), (204, Value::Null));
    let state = fixture.state();
    assert_eq!(state["ports"].as_array().unwrap().len(), 1);
    assert_eq!(state["deleted"][0]["number"], 2);
    Fixture::refused(
        &fixture.send("DELETE", "/v1/ports/2", "", "").await,
        404,
        "port-unknown",
    );
}

#[tokio::test]
async fn an_executor_that_cannot_be_is_refused_with_the_contracts_word() {
    let fixture = Fixture::new().await;
    for (path, body, status, code) in [
        (
            "/v1/ports/1/executor",
            json!({"executor": "snic9"}),
            404,
            "switch-unknown",
        ),
        (
            "/v1/ports/9/executor",
            json!({"executor": "home"}),
            404,
            "port-unknown",
        ),
        (
            "/v1/ports/1/executor",
            json!({"executor": "home"}),
            409,
            "switch-down",
        ),
        ("/v1/ports/1/executor", json!({}), 400, "malformed"),
        (
            "/v1/ports/1/executor",
            json!({"executor": "home", "grace_ms": 600_001}),
            400,
            "malformed",
        ),
    ] {
        let refused = fixture.json("POST", path, body).await;
        Fixture::refused(&refused, status, code);
    }
    let wrong = fixture.send("DELETE", "/v1/ports/1/executor", "", "").await;
    Fixture::refused(&wrong, 405, "method-not-allowed");
}

#[tokio::test]
async fn a_port_that_cannot_be_mapped_is_refused_with_the_contracts_word() {
    let fixture = Fixture::new().await;
    let good = json!({"name": "nine", "switch": "hypervisor", "interface": "vm9"});
    for (key, value, status, code) in [
        ("switch", json!("snic9"), 404, "switch-unknown"),
        ("number", json!(1), 409, "port-number-taken"),
        ("number", json!(0), 422, "number-out-of-range"),
        ("number", json!(65_024), 422, "number-out-of-range"),
        ("number", json!(-1), 422, "number-out-of-range"),
        (
            "number",
            json!(99_999_999_999_u64),
            422,
            "number-out-of-range",
        ),
        ("name", json!("vm1"), 409, "name-taken"),
        ("name", json!("0123456789abcdef"), 422, "name-too-long"),
        ("interface", json!("vm1"), 409, "interface-taken"),
        ("interface", json!("vm9"), 409, "switch-down"),
    ] {
        let mut body = good.clone();
        body[key] = value;
        Fixture::refused(&fixture.json("POST", "/v1/ports", body).await, status, code);
    }
}

#[tokio::test]
async fn moves_are_refused_with_the_contracts_word() {
    let fixture = Fixture::new().await;
    let good =
        json!({"switch": "snic0", "interface": "pf0vf1", "until": "prepared", "grace_ms": 0});
    for (number, body, status, code) in [
        (9, good.clone(), 404, "port-unknown"),
        (
            1,
            json!({"switch": "snic9", "interface": "x"}),
            404,
            "switch-unknown",
        ),
        (
            1,
            json!({"switch": "snic0", "interface": "pf0vf0"}),
            409,
            "interface-taken",
        ),
        (1, good, 409, "switch-down"),
        (
            1,
            json!({"switch": "snic0", "interface": "x", "until": "never"}),
            400,
            "malformed",
        ),
        (
            1,
            json!({"switch": "snic0", "interface": "x", "grace_ms": 600_001}),
            400,
            "malformed",
        ),
    ] {
        let refused = fixture
            .json("POST", &format!("/v1/ports/{number}/move"), body)
            .await;
        Fixture::refused(&refused, status, code);
    }
    for empty in ["", "{}"] {
        Fixture::refused(
            &fixture
                .send("POST", "/v1/ports/1/move/continue", "", empty)
                .await,
            409,
            "no-move",
        );
    }
    Fixture::refused(
        &fixture.send("DELETE", "/v1/ports/1/move", "", "").await,
        409,
        "no-move",
    );
}

#[tokio::test]
async fn broken_bodies_are_told_what_is_wrong() {
    let fixture = Fixture::new().await;
    for (body, complaint) in [
        ("", "missing field `switch`"),
        ("{", "EOF"),
        ("[]", "invalid"),
        (
            "{\"switch\": 1, \"interface\": \"x\"}",
            "invalid type: integer `1`, expected a string",
        ),
        (
            "{\"switch\": \"hypervisor\", \"interface\": \"x\", \"nubmer\": 5}",
            "unknown field `nubmer`, expected one of `number`",
        ),
        (
            "{\"switch\": \"a\", \"switch\": \"b\", \"interface\": \"x\"}",
            "duplicate field `switch`",
        ),
    ] {
        let refused = fixture
            .send(
                "POST",
                "/v1/ports",
                "Content-Type: application/json\r\n",
                body,
            )
            .await;
        let detail = Fixture::refused(&refused, 400, "malformed");
        assert!(detail.contains(complaint), "{detail}");
    }
    let refused = fixture
        .send("POST", "/v1/ports", "Content-Type: text/plain\r\n", "{}")
        .await;
    Fixture::refused(&refused, 415, "unsupported-media-type");
    let large = format!("{{\"switch\": \"{}\"}}", "x".repeat(64 * 1024));
    let refused = fixture
        .send(
            "POST",
            "/v1/ports",
            "Content-Type: application/json\r\n",
            &large,
        )
        .await;
    Fixture::refused(&refused, 413, "too-large");
}

#[tokio::test]
async fn wrong_paths_and_methods_say_what_is_possible() {
    let fixture = Fixture::new().await;
    for path in [
        "/",
        "/v1",
        "/v2/status",
        "/v1/status/",
        "/v1/ports/1/move/stop",
        "*",
    ] {
        Fixture::refused(&fixture.get(path).await, 404, "not-found");
    }
    for (method, path, allowed) in [
        ("POST", "/v1/status", "get"),
        ("PUT", "/v1/ports", "get, post"),
        ("PATCH", "/v1/ports/1", "get, delete"),
        ("GET", "/v1/ports/1/move", "post, delete"),
        ("DELETE", "/v1/ports/1/move/continue", "post"),
        ("POST", "/v1/log", "get, put"),
    ] {
        let refused = fixture.send(method, path, "", "").await;
        Fixture::refused(&refused, 405, "method-not-allowed");
        assert!(
            refused
                .head
                .lines()
                .any(|line| line == format!("allow: {allowed}")),
            "{}",
            refused.head
        );
    }
}

#[tokio::test]
async fn log_levels_are_read_and_changed() {
    let fixture = Fixture::new().await;
    let levels = fixture.get("/v1/log").await;
    assert_eq!(
        (levels.status, &levels.body["default"]),
        (200, &json!("info"))
    );
    let changed = fixture
        .json("PUT", "/v1/log", json!({"openflow": "debug"}))
        .await;
    assert_eq!(
        (
            changed.status,
            &changed.body["openflow"],
            &changed.body["core"]
        ),
        (200, &json!("debug"), &json!("info"))
    );
    for (body, complaint) in [
        (json!({"openflow": "loud"}), "\"loud\" is not a log level"),
        (
            json!({"flow": "info"}),
            "\"flow\" is not a module; expected default, northbound",
        ),
        (json!({"core": 3}), "invalid type"),
    ] {
        let detail = Fixture::refused(
            &fixture.json("PUT", "/v1/log", body).await,
            400,
            "malformed",
        );
        assert!(detail.contains(complaint), "{detail}");
    }
    assert_eq!(fixture.get("/v1/log").await.body, changed.body);
}

#[tokio::test]
async fn on_tcp_only_the_token_opens() {
    let folder = tempfile::tempdir().unwrap();
    let token: PathBuf = folder.path().join("token");
    std::fs::write(&token, "s3cret\n").unwrap();
    let api = format!(
        "raw \"tcp:127.0.0.1:0\"\napi_token_file = \"{}\"",
        token.display()
    );
    let fixture = Fixture::with_api(folder, &api).await;
    assert!(matches!(&fixture.endpoint, ApiEndpoint::Tcp(address) if address.port() != 0));
    for header in [
        "",
        "Authorization: Bearer s3cre\r\n",
        "Authorization: Bearer s3cret!\r\n",
        "Authorization: Basic s3cret\r\n",
    ] {
        let refused = fixture.send("GET", "/v1/status", header, "").await;
        Fixture::refused(&refused, 401, "unauthorized");
        assert!(
            refused.head.contains("www-authenticate: bearer"),
            "{}",
            refused.head
        );
        assert!(!refused.body.to_string().contains("s3cret"));
    }
    assert_eq!(
        fixture
            .send("GET", "/v1/status", "Authorization: Bearer s3cret\r\n", "")
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn an_empty_token_is_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, " \n").unwrap();
    assert!(read_token(&path)
        .unwrap_err()
        .ends_with("token: no token in it"));
    assert!(read_token(&folder.path().join("none"))
        .unwrap_err()
        .contains("none: cannot be read"));
}

#[tokio::test]
async fn what_is_not_http_harms_nobody() {
    let fixture = Fixture::new().await;
    for garbage in [
        &b"\x04\x00\x00\x08\x00\x00\x00\x01"[..],
        b"GET\r\n\r\n",
        &[0xff; 4_096],
    ] {
        let ApiEndpoint::Unix(path) = &fixture.endpoint else {
            panic!()
        };
        let mut answer = Vec::new();
        exchange(
            UnixStream::connect(path).await.unwrap(),
            &[garbage, b"\r\n\r\n"].concat(),
            &mut answer,
        )
        .await;
    }
    assert_eq!(fixture.get("/v1/status").await.status, 200);
}
