//! Ports: listed, mapped, moved, deleted.

use super::*;

#[tokio::test]
async fn ports_are_listed_and_found() {
    let fixture = Fixture::new().await;
    let ports = fixture.get("/v1/ports").await;
    assert_eq!(ports.status, 200);
    let first = &ports.body[0];
    assert_eq!(ports.body.as_array().unwrap().len(), 2);
    for (key, value) in [
        ("number", json!(1)),
        ("name", json!("vm1")),
        ("switch", json!("hypervisor")),
        ("interface", json!("vm1")),
        ("state", json!("down")),
        ("config", json!([])),
        ("mac", Value::Null),
        ("move", Value::Null),
        ("executor", json!("home")),
        ("executes_at", json!("hypervisor")),
        ("ingress_id", Value::Null),
    ] {
        assert_eq!(first[key], value, "{key}");
    }
    let reason = first["reason"].as_str().unwrap();
    assert!(reason.contains("hypervisor"), "{first}");
    assert!(first["flow_id"].as_u64().unwrap() > 0);
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
    let again = "DELETE /v1/ports/2 => 404 port-unknown";
    fixture.refuses(again).await;
}

#[tokio::test]
async fn an_executor_that_cannot_be_is_refused_with_the_contracts_word() {
    let fixture = Fixture::new().await;
    let cases = r#"
POST /v1/ports/1/executor {"executor": "snic9"} => 404 switch-unknown
POST /v1/ports/9/executor {"executor": "home"} => 404 port-unknown
POST /v1/ports/1/executor {"executor": "home"} => 409 switch-down
POST /v1/ports/1/executor {} => 400 malformed
POST /v1/ports/1/executor {"executor": "home", "grace_ms": 600001} => 400 malformed
DELETE /v1/ports/1/executor => 405 method-not-allowed
"#;
    fixture.refuses(cases).await;
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
        ("number", json!(1u64 << 40), 422, "number-out-of-range"),
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
    let cases = r#"
POST /v1/ports/9/move {"switch": "snic0", "interface": "pf0vf1", "until": "prepared", "grace_ms": 0, "force": true} => 404 port-unknown
POST /v1/ports/1/move {"switch": "snic9", "interface": "x"} => 404 switch-unknown
POST /v1/ports/1/move {"switch": "snic0", "interface": "pf0vf0"} => 409 interface-taken
POST /v1/ports/1/move {"switch": "snic0", "interface": "pf0vf1", "until": "prepared", "grace_ms": 0, "force": true} => 409 switch-down
POST /v1/ports/1/move {"switch": "snic0", "interface": "x", "until": "never"} => 400 malformed
POST /v1/ports/1/move {"switch": "snic0", "interface": "x", "grace_ms": 600001} => 400 malformed
POST /v1/ports/1/move/continue => 409 no-move
POST /v1/ports/1/move/continue {} => 409 no-move
POST /v1/ports/1/move/continue {"until": "flipped", "force": true} => 409 no-move
DELETE /v1/ports/1/move => 409 no-move
"#;
    fixture.refuses(cases).await;
}

#[tokio::test]
async fn markers_of_no_move_and_frames_that_are_none_are_refused() {
    let fixture = Fixture::new().await;
    let path = "/v1/ports/1/move/markers";
    let of = |frames: &[String]| json!({"switch": "snic0", "interface": "x", "frames": frames});
    let (short, long) = ("ab".repeat(13), "0".repeat(2 * 1_515));
    for (frame, status, code) in [
        ("ab".repeat(14), 409, "no-move"),
        ("AB".repeat(1_514), 409, "no-move"),
        (short, 400, "malformed"),
        (long, 400, "malformed"),
        ("0".repeat(29), 400, "malformed"),
        ("+1".repeat(14), 400, "malformed"),
        ("é".repeat(14), 400, "malformed"),
    ] {
        let refused = fixture.json("POST", path, of(&[frame])).await;
        Fixture::refused(&refused, status, code);
    }
    let unknown = fixture.json("POST", "/v1/ports/9/move/markers", of(&[]));
    Fixture::refused(&unknown.await, 404, "port-unknown");
    let wrong = fixture.get(path).await;
    Fixture::refused(&wrong, 405, "method-not-allowed");
}

#[tokio::test]
async fn an_owned_port_is_taken_away_by_its_owner_only() {
    let fixture = Fixture::new().await;
    let (port, owner) = ("/v1/ports/2", "/v1/ports/2/owner");
    let ours = json!({"owner": "nfagent/acme/lb1"});
    let given = fixture.json("PUT", owner, ours.clone()).await;
    assert_eq!((given.status, &given.body["owner"]), (200, &ours["owner"]));
    assert_eq!(
        fixture.state()["ports"][1]["owner"],
        ours["owner"],
        "saved before the answer"
    );
    let theirs = json!({"owner": "somebody"});
    let elsewhere = json!({"switch": "hypervisor", "interface": "vm9"});
    let forced = json!({"switch": "hypervisor", "interface": "vm9", "force": true});
    let theirs_elsewhere = json!({"switch": "hypervisor", "interface": "vm9", "owner": "somebody"});
    let theirs_markers = json!({"switch": "snic0", "interface": "x", "frames": [], "owner": "b"});
    for (method, path, body) in [
        ("DELETE", port, json!({})),
        ("DELETE", port, theirs.clone()),
        ("PUT", owner, theirs.clone()),
        ("PUT", owner, json!({})),
        ("POST", "/v1/ports/2/move", elsewhere),
        ("POST", "/v1/ports/2/move", forced),
        ("POST", "/v1/ports/2/move", theirs_elsewhere),
        ("POST", "/v1/ports/2/move/markers", theirs_markers),
    ] {
        let refused = fixture.json(method, path, body).await;
        let detail = Fixture::refused(&refused, 409, "port-owned");
        assert!(
            detail.contains("\"nfagent/acme/lb1\"") && detail.contains("--force"),
            "{detail}"
        );
    }
    assert_eq!(fixture.get(port).await.body["owner"], ours["owner"]);
    let moved = json!({"switch": "hypervisor", "interface": "vm9", "owner": "nfagent/acme/lb1"});
    let refused = fixture.json("POST", "/v1/ports/2/move", moved).await;
    Fixture::refused(&refused, 409, "switch-down");
    let gone = fixture.json("DELETE", port, ours).await;
    assert_eq!(gone.status, 204);
}

#[tokio::test]
async fn force_takes_what_another_owns() {
    let fixture = Fixture::new().await;
    let owner = "/v1/ports/2/owner";
    for body in [
        json!({"owner": "a"}),
        json!({"owner": "b", "force": true}),
        json!({"force": true}),
        json!({"owner": "c"}),
    ] {
        let given = fixture.json("PUT", owner, body.clone()).await;
        assert_eq!((given.status, &given.body["owner"]), (200, &body["owner"]));
    }
    let forced = fixture.json("DELETE", "/v1/ports/2", json!({"force": true}));
    assert_eq!(forced.await.status, 204);
}

#[tokio::test]
async fn what_is_not_the_name_of_an_owner_is_refused() {
    let fixture = Fixture::new().await;
    for owner in ["", "two\nlines", &"x".repeat(513)] {
        let refused = fixture.json("PUT", "/v1/ports/2/owner", json!({"owner": owner}));
        let detail = Fixture::refused(&refused.await, 400, "malformed");
        assert!(detail.contains("owner"), "{detail}");
        let added = json!({"switch": "hypervisor", "interface": "vm9", "owner": owner});
        let refused = fixture.json("POST", "/v1/ports", added).await;
        Fixture::refused(&refused, 400, "malformed");
    }
}
