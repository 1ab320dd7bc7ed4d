"""Requests generated from the OpenAPI document: every answer conforms to it."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from tests.nfagent.world import ADMIN_TOKEN, World

DOCUMENT = json.loads((Path(__file__).resolve().parents[2] / "docs/openapi.json").read_text())
# A stream of events does not end, so it has no complete answer.
OPERATIONS = [
    (method, path)
    for path, operations in sorted(DOCUMENT["paths"].items())
    for method in sorted(operations)
    if path != "/api/v1/events"
]
# Valid requests may name an unknown kind or marker; decisions and measurements answer 503
# until the first one exists.
NOT_PROMISED = [positive_data_acceptance, not_a_server_error]
UNAVAILABLE = ("/api/v1/placement/", "/api/v1/load")


@pytest.fixture(scope="module")
def small_world(module_directory: Path) -> Iterator[World]:
    made = World(module_directory, instances=20)
    for number in range(3):
        made.admin.post("/api/v1/instances", json={"name": f"nf{number}", "kind": "sleeper"})
    yield made
    made.close()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["fit", "unfit"])
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[f"{method} {path}" for method, path in OPERATIONS])
def test_answers_conform_to_the_openapi_document(
    small_world: World, method: str, path: str, mode: GenerationMode
) -> None:
    operation = schemathesis.openapi.from_dict(DOCUMENT)[path][method]
    if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
        return  # nothing in it can be invalid

    @settings(
        max_examples=8,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(case=operation.as_strategy(mode))
    def check(case: schemathesis.Case) -> None:
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        answer = case.call(base_url=small_world.url, headers=headers)
        excluded = NOT_PROMISED
        sent = parse_qs(urlsplit(str(answer.request.url)).query, keep_blank_values=True)
        if set(case.query or {}) - set(sent):
            # A parameter with an empty list as its value is not in the URL, which then has nothing unfit.
            excluded = [*NOT_PROMISED, negative_data_rejection]
        case.validate_response(answer, excluded_checks=excluded)
        assert answer.status_code < 500 or (answer.status_code == 503 and path.startswith(UNAVAILABLE))

    check()
