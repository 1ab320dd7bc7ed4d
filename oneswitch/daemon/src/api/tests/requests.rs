//! Invalid requests, and authorisation.

use super::*;

#[tokio::test]
async fn broken_bodies_are_told_what_is_wrong() {
    let fixture = Fixture::new().await;
    for (body, complaint) in [
        ("", "missing field `switch`"),
        ("{", "EOF"),
        ("[]", "invalid"),
        (
            r#"{"switch": 1, "interface": "x"}"#,
            "invalid type: integer `1`, expected a string",
        ),
        (
            r#"{"switch": "hypervisor", "interface": "x", "nubmer": 5}"#,
            "unknown field `nubmer`, expected one of `number`",
        ),
        (
            r#"{"switch": "a", "switch": "b", "interface": "x"}"#,
            "duplicate field `switch`",
        ),
    ] {
        let refused = fixture.send("POST", "/v1/ports", JSON, body).await;
        let detail = Fixture::refused(&refused, 400, "malformed");
        assert!(detail.contains(complaint), "{detail}");
    }
    let refused = fixture
        .send("POST", "/v1/ports", "Content-Type: text/plain\r\n", "{}")
        .await;
    Fixture::refused(&refused, 415, "unsupported-media-type");
    let large = format!("{{\"switch\": \"{}\"}}", "x".repeat(64 * 1024));
    let refused = fixture.send("POST", "/v1/ports", JSON, &large).await;
    Fixture::refused(&refused, 413, "too-large");
}

#[tokio::test]
async fn half_a_body_is_not_waited_for_without_end() {
    let fixture = Fixture::new().await;
    let ApiEndpoint::Unix(path) = &fixture.endpoint else {
        panic!("{}", fixture.endpoint)
    };
    let mut stream = UnixStream::connect(path).await.unwrap();
    let half = b"POST /v1/ports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{\"switch\"";
    stream.write_all(half).await.unwrap();
    // From now on time advances whenever everything is idle.
    tokio::time::pause();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 408");
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
        ("GET", "/v1/audit", "post"),
    ] {
        let refused = fixture.send(method, path, "", "").await;
        Fixture::refused(&refused, 405, "method-not-allowed");
        let (head, allowed) = (&refused.head, format!("allow: {allowed}"));
        assert!(head.lines().any(|line| line == allowed), "{head}");
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
        let refused = fixture.json("PUT", "/v1/log", body).await;
        let detail = Fixture::refused(&refused, 400, "malformed");
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
        .ends_with("token: contains no token"));
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
        let stream = UnixStream::connect(path).await.unwrap();
        let request = [garbage, b"\r\n\r\n"].concat();
        exchange(stream, &request, &mut Vec::new()).await;
    }
    assert_eq!(fixture.get("/v1/status").await.status, 200);
}

#[tokio::test]
async fn a_client_that_traces_its_request_is_told_when_it_was_processed() {
    let fixture = Fixture::new().await;
    let parent = |flags: &str| {
        format!("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}\r\n")
    };
    for (headers, path, told) in [
        (parent("01"), "/v1/ports", true),
        (parent("01"), "/v1/ports/99", true), // refused
        (parent("00"), "/v1/ports", false),
        ("traceparent: é--\r\n".to_owned(), "/v1/ports", false),
        (String::new(), "/v1/ports", false),
    ] {
        let answer = fixture.send("GET", path, &headers, "").await;
        let timing = "server-timing: oneswitchd;dur=";
        let starts = answer.head.contains(timing) && answer.head.contains(";start=1");
        assert_eq!(starts, told, "{headers}{}", answer.head);
    }
}
