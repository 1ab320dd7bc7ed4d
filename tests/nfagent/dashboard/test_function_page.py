"""The page of one network function: what it shows, and its actions."""

from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.nfagent.dashboard.stage import Tab, chromium
from tests.nfagent.world import ADMIN_TOKEN, World

MARKUP = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>"


def path(instance: dict[str, Any]) -> str:
    return f"/dashboard/functions/{instance['id']}"


def act(world: World, instance: dict[str, Any], action: str, **form: str) -> httpx.Response:
    return world.operator.post(f"{path(instance)}/{action}", data=form)


def test_the_page_shows_configuration_log_and_history(own_world: World) -> None:
    made = own_world.create("spoken", "loud", config={"text": MARKUP}, labels={"team": "<b>blue"})
    own_world.wait_status(made, "active")
    own_world.wait(lambda: "one\ntwo" in own_world.operator.get(path(made)).text)
    answer = own_world.operator.get(path(made))
    assert answer.status_code == 200
    assert "&lt;/pre&gt;&lt;script&gt;" in answer.text
    assert "&lt;b&gt;blue" in answer.text
    assert "<script>" not in answer.text
    assert "created, a loud" in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'self'; ")
    parts = own_world.operator.get(f"{path(made)}/parts").json()
    assert set(parts["fragments"]) == {"state", "talk", "configuration", "log", "migrations", "events"}
    page = own_world.operator.get("/dashboard").text
    assert f'href="{path(made)}"' in page


def test_a_function_is_moved_pinned_and_deleted(own_world: World) -> None:
    made = own_world.wait_status(own_world.create("acted"), "active")
    answer = act(own_world, made, "move", target="snic0")
    assert (answer.status_code, answer.headers["location"]) == (303, path(made))
    own_world.wait(lambda: own_world.show(made)["placement"]["location"] == "snic0")
    own_world.wait_status(made, "active")
    assert "from hypervisor, just now" in own_world.operator.get(path(made)).text
    assert act(own_world, made, "pin", pin="snic0").status_code == 303
    assert own_world.show(made)["placement"]["pin"] == "snic0"
    assert act(own_world, made, "pin", pin="").status_code == 303
    assert own_world.show(made)["placement"]["pin"] is None
    refused = act(own_world, made, "delete", name="other")
    assert refused.status_code == 422
    assert "nothing was deleted" in refused.text
    assert own_world.show(made)["status"] == "active"
    assert act(own_world, made, "delete", name="acted").status_code == 303
    own_world.wait(lambda: own_world.operator.get(path(made)).status_code == 404)
    assert "No such network function" in own_world.operator.get(path(made)).text


def test_refusals_are_readable(world: World) -> None:
    made = world.wait_status(world.create("refused", "toy", config={"n": 1}), "active")
    answer = act(world, made, "move", target="nowhere")
    assert answer.status_code in (404, 422)
    assert "Refused." in answer.text
    assert "nowhere" in answer.text
    for client in (world.tenant, world.with_token("")):
        for action in ("move", "pin", "delete"):
            answer = client.post(f"{path(made)}/{action}", data={"name": "refused", "target": "snic0"})
            assert answer.status_code in (401, 403)
            assert "<form" in answer.text
        assert client.get(path(made)).status_code in (401, 403)
        assert client.get(f"{path(made)}/parts").status_code in (401, 403)
    foreign = world.operator.post(f"{path(made)}/delete", data={"name": "refused"}, headers={"Origin": "http://evil"})
    assert foreign.status_code == 403
    assert world.show(made)["status"] == "active"
    assert world.operator.get("/dashboard/functions/%3Cscript%3E").status_code == 404


def test_roles_see_no_secrets_and_readers_no_actions(own_world: World) -> None:
    roles = ("operator", "reader")
    tokens = own_world.directory / "tokens"
    tokens.write_text(tokens.read_text() + "".join(f"ops {role} token-of-the-{role}\n" for role in roles))
    made = own_world.create("kept", "toy", config={"n": 1, "password": "hunter2"})
    own_world.wait_status(made, "active")
    assert "hunter2" in own_world.operator.get(path(made)).text
    for role in roles:
        with own_world.with_token(f"token-of-the-{role}") as client:
            for address in (path(made), f"{path(made)}/parts", "/dashboard"):
                answer = client.get(address)
                assert (answer.status_code, "hunter2" in answer.text) == (200, False)
            assert ("Delete for good" in client.get(path(made)).text) == (role == "operator")
    with own_world.with_token("token-of-the-reader") as client:
        answer = client.post(f"{path(made)}/delete", data={"name": "kept"})
        assert (answer.status_code, "requires the role operator or admin" in answer.text) == (403, True)
    assert own_world.show(made)["status"] == "active"


@pytest.mark.skipif(chromium() is None, reason="chromium is not installed")
def test_the_page_follows_the_function_and_deletes_it_after_a_confirmation(own_world: World, tab: Tab) -> None:
    own = own_world
    made = own.wait_status(own.create("watched", "toy", config={"n": 1, "text": MARKUP}), "active")
    page = tab.page
    page.context.set_extra_http_headers({"X-Auth-Token": ADMIN_TOKEN})
    page.goto(f"{own.url}{path(made)}")
    expect(page.locator("#configuration pre")).to_contain_text(MARKUP)
    own.operator.patch(f"/api/v1/instances/{made['id']}", json={"config": {"n": 2}})
    expect(page.locator("#configuration pre")).to_contain_text('"n": 2')
    page.get_by_text("Delete", exact=True).click()
    page.get_by_label("to confirm").fill("watched")
    page.get_by_role("button", name="Delete for good").click()
    own.wait(lambda: own.operator.get(f"/api/v1/instances/{made['id']}").status_code == 404)
    assert [fault for fault in tab.faults if "404" not in fault] == []
