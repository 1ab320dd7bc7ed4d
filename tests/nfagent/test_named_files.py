"""A configuration of a tenant names only files of its project: functions open them with nfagent's rights."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from nfagent.config import AgentConfig
from nfagent.errors import InvalidError
from nfagent.named_files import check_files
from server.errors import ConfigError
from tests.nfagent.test_api import V1, refused
from tests.nfagent.test_openstack import ROOT, fault, order
from tests.nfagent.world import World

PLACES = ("log.path", "listeners[].tls.key", "muxes[].socket", "names[][]")


def tls(key: Any) -> dict[str, Any]:
    return {"listeners": [{}, {"tls": {"key": key}}]}


@pytest.fixture
def files(directory: Path) -> Path:
    """Return the directory of all projects' files; acme has one with links that lead out of it."""
    own = directory / "files/acme"
    own.mkdir(parents=True)
    (directory / "files/other").mkdir()
    (own / "key.pem").touch()
    (own / "out").symlink_to("/etc")
    (own / "key2.pem").symlink_to("key.pem")
    (own / "circle").symlink_to("circle")
    (directory / "files/linked").symlink_to(own)
    return directory / "files"


@pytest.mark.parametrize(
    "text",
    [
        "/etc/passwd",
        "access.log",
        "",
        "~/x",
        "{own}",
        "{own}/",
        "{own}/../other/x",
        "{own}/x/../../other/y",
        "{own}/out/passwd",
        "{own}/circle/x",
        "{own}/\0",
        "{own}2/x",
        "unix:/run/nfagent/nfagent.sock",
        "file:{own}/key.pem",
    ],
)
def test_other_files_are_refused_with_place_value_and_expectation(files: Path, text: str) -> None:
    own, named = files / "acme", text.replace("{own}", str(files / "acme"))
    for place, config in (
        ("log.path", {"log": {"path": named}}),
        ("listeners[1].tls.key", tls(named)),
        ("names[0][1]", {"names": [[str(own / "x"), named]]}),
    ):
        with pytest.raises(InvalidError) as found:
            check_files(PLACES, config, {}, files, "acme")
        assert (found.value.code, found.value.field) == ("file-refused", f"config.{place}")
        assert f"{place}: {named!r} names a file" in found.value.detail
        assert f"expected a file below {own}, or an administrator's request" in found.value.detail
    with pytest.raises(InvalidError, match="only administrators may name files"):
        check_files(PLACES, {"log": {"path": named}}, {}, None, "acme")


def test_files_of_the_project_and_those_that_are_there_already_may_be_named(files: Path) -> None:
    own = files / "acme"
    for name in ("key.pem", "key2.pem", "new.log", "deep/er"):
        check_files(PLACES, tls(str(own / name)) | {"log": {"path": str(own / name)}}, {}, files, "acme")
        check_files(PLACES, {"muxes": [{"socket": f"unix:{own / name}"}]}, {}, files, "acme")
    before = tls("/etc/ssl/given.pem")
    for directory in (files, None):
        check_files(PLACES, before | {"log": None, "other": "/etc/passwd"}, before, directory, "acme")
        with pytest.raises(InvalidError):
            check_files(PLACES, before | {"log": {"path": "/etc/ssl/given.pem"}}, before, directory, "acme")


@pytest.mark.parametrize("project", ["..", ".", "other/../acme", "/etc", "acme/x"])
def test_a_project_has_no_other_directory(files: Path, project: str) -> None:
    with pytest.raises(InvalidError):
        check_files(PLACES, {"log": {"path": str(files / project / "key.pem")}}, {}, files, project)


@pytest.mark.parametrize("place", ["", ".a", "a.", "a..b", "[]", "a[0]", "a[]b"])
def test_places_of_kinds_are_checked(place: str) -> None:
    with pytest.raises(ConfigError):
        AgentConfig.parse(f'[[kind]]\nname = "x"\ncommand = ["x"]\nfiles = ["{place}"]\n')


def test_tenants_and_operators_name_no_other_files_by_any_interface(own_world: World) -> None:
    files = own_world.directory / "files"
    tokens = own_world.directory / "tokens"
    tokens.write_text(f"{tokens.read_text()}acme operator operator-token-0123456789\n")
    night_shift = own_world.with_token("operator-token-0123456789")

    def post(client: httpx.Client, name: str, config: dict[str, Any]) -> httpx.Response:
        return client.post(f"{V1}/instances", json={"name": name, "kind": "reader", "config": config})

    bad, good = {"log": {"path": str(tokens)}}, {"log": {"path": f"{files}/acme/access.log"}}
    for client in (own_world.tenant, night_shift):
        body = refused(post(client, "bad", bad), 422, "file-refused", str(tokens), f"below {files}/acme")
        assert [each["field"] for each in body["errors"]] == ["config.log.path"]
        refused(post(client, "bad", {"log": {"path": f"{files}/other/x"}}), 422, "file-refused")
    own = post(own_world.tenant, "own", good)
    assert own.status_code == 202
    refused(own_world.tenant.patch(f"{V1}/instances/own", json={"config": bad}), 422, "file-refused")
    assert own_world.tenant.patch(f"{V1}/instances/own", json={"config": good | {"n": 1}}).status_code == 200
    given = own_world.admin.patch(f"{V1}/instances/acme/own", json={"config": bad})
    assert given.status_code == 200
    kept = own_world.tenant.patch(f"{V1}/instances/own", json={"config": bad | {"n": 2}})
    assert kept.status_code == 200
    data = "eyJsb2ciOiB7InBhdGgiOiAiL2V0Yy9wYXNzd2QifX0="  # {"log": {"path": "/etc/passwd"}}
    answer = own_world.tenant.post(f"{ROOT}/servers", json=order(imageRef="reader", user_data=data))
    fault(answer, 400, "badRequest", "/etc/passwd")
