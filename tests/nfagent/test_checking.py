"""Configurations are examined by the kind's own program before they are accepted."""

from typing import Any

import pytest

from nfagent.catalog import nf_kinds
from nfagent.checking import check_configuration
from nfagent.errors import InvalidError, UnavailableError
from nfagent.model import Kind

KINDS = {kind.name: kind for kind in nf_kinds("nf")}


@pytest.mark.parametrize(
    ("kind", "config", "field", "told"),
    [
        ("limiter", {}, "config", "missing field `packets`"),
        ("limiter", {"packets": 0}, "config.packets", "packets: invalid value: integer `0`, expected a nonzero u32"),
        ("limiter", {"packets": 5, "spped": 1}, "config.spped", "spped: unknown field `spped`, expected one of"),
        (
            "l4lb",
            {"vips": [{"address": "ten"}]},
            "config.vips[0].address",
            "vips[0].address: invalid IP address syntax",
        ),
    ],
)
def test_a_refusal_names_the_value(kind: str, config: dict[str, Any], field: str, told: str) -> None:
    with pytest.raises(InvalidError) as refused:
        check_configuration(KINDS[kind], config, 1)
    assert (refused.value.code, refused.value.field) == ("configuration-refused", field)
    assert refused.value.detail.startswith(told)
    assert " line " not in refused.value.detail


def test_what_the_function_takes_is_accepted() -> None:
    check_configuration(KINDS["limiter"], {"packets": 5}, 1)
    check_configuration(Kind("own", "", False, (0, 2), ("sleep", "1")), {"any": ["thing"]}, 0)


def own(script: str) -> Kind:
    return Kind("own", "", False, (0, 2), (), ("sh", "-c", script, "{config}", "{ports}"))


def test_the_program_gets_the_configuration_and_the_number_of_ports() -> None:
    with pytest.raises(InvalidError, match=r'^{"value": 1} with 2$'):
        check_configuration(own('echo "$(cat "$0") with $1" >&2; exit 1'), {"value": 1}, 2)


def test_a_file_of_another_machine_and_a_failing_program_refuse_nothing(caplog: pytest.LogCaptureFixture) -> None:
    check_configuration(own('echo "nf: $0: tls: /etc/a.pem: cannot be read: No such file" >&2; exit 1'), {}, 1)
    assert caplog.text == ""
    check_configuration(own("echo out of memory >&2; exit 101"), {}, 1)
    assert "out of memory" in caplog.text
    with pytest.raises(UnavailableError, match="cannot check configurations now"):
        check_configuration(Kind("own", "", False, (0, 2), (), ("/nonexistent",)), {}, 1)
