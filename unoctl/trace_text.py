"""Reads the output of ``ovs-appctl ofproto/trace`` (Open vSwitch 3.1).

The text is one translation, or several: each further one continues a packet that went through connection tracking and
stands behind a line of ``=``. A translation ends with "Datapath actions:"; before it stand, indented, the rules that
the packet hit and what their actions did.
"""

import re
from dataclasses import dataclass
from typing import Any

from server.errors import TextError

_BRIDGE = re.compile(r'^bridge\("(.*)"\)$')
_RULE = re.compile(r"^(\d+)\. (?:(.*?)(?:, )?priority (\d+)(?:, cookie (0x[0-9a-f]+))?|(No match.*|Packets are .*))$")
_RECIRC = re.compile(r"^recirc\((0x[0-9a-f]+|0)\)\s*-?\s*(.*)$")
_FAILED = re.compile(r"^Translation failed \((.*)\)")
_RULER = re.compile(r"^={10,}$", re.MULTILINE)
# The bridge of the steps of a packet that was recirculated: ofproto/trace does not name it.
RESUMED = "resumed"
# What Open vSwitch installs by itself for packets that no rule matches.
_MISS_MATCHES = ("reg0=0x1", "reg0=0x2")


@dataclass(frozen=True)
class Rule:
    """A rule that the packet hit; ``match`` None: none did in this table."""

    table: int
    match: str | None
    priority: int
    cookie: int

    def __str__(self) -> str:
        if self.match is None:
            return f"table {self.table}: no match"
        match = ",".join(term for term in (f"priority={self.priority}", self.match) if term)
        cookie = f" cookie {self.cookie:#x}" if self.cookie else ""
        return f"table {self.table}: {match}{cookie}"


@dataclass(frozen=True)
class Step:
    """One line of the way through the bridges.

    Attributes:
        depth: how deep it is nested, in levels.
        kind: ``bridge``, ``rule``, ``action``, ``detail``, ``warning``.
        bridge: the bridge that it is in; "" before the first, :data:`RESUMED` after a recirculation.
        text: the line.
        rule: of a ``rule``.
    """

    depth: int
    kind: str
    bridge: str
    text: str
    rule: Rule | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        record: dict[str, Any] = {"depth": self.depth, "kind": self.kind, "bridge": self.bridge, "text": self.text}
        if self.rule:
            record |= {"table": self.rule.table, "match": self.rule.match, "priority": self.rule.priority}
            record["cookie"] = f"{self.rule.cookie:#x}"
        return record


@dataclass(frozen=True)
class Translation:
    """One packet through one datapath once.

    Attributes:
        recirc_id: the id with which it was recirculated; None: it was received.
        resumed: why it was recirculated, in ofproto/trace's words.
        flow: the packet as ofproto/trace describes it.
        steps: its way through the bridges.
        megaflow: what the cached flow would match.
        actions: the data-path actions, or None where translation failed.
        failure: why it failed.
        slow_path: why each such packet goes through ovs-vswitchd.
    """

    recirc_id: int | None
    resumed: str
    flow: str
    steps: tuple[Step, ...]
    megaflow: str
    actions: str | None
    failure: str | None
    slow_path: tuple[str, ...]


def parse(text: str) -> list[Translation]:
    """The translations in one output.

    Raises:
        TextError: one has neither actions nor a failure.
    """
    blocks = _RULER.split(text)
    translations = [_translation(None, "", blocks[0])]
    for header, block in zip(blocks[1::2], blocks[2::2], strict=False):
        first = header.strip().splitlines()[0] if header.strip() else ""
        match = _RECIRC.match(first)
        if match is None:
            raise TextError(f"ofproto/trace: {first!r} between rulers; expected recirc(ID) - resume ...")
        translations.append(_translation(int(match.group(1), 0), match.group(2), block))
    return translations


def _translation(recirc_id: int | None, resumed: str, block: str) -> Translation:
    heads: dict[str, str] = {}
    steps: list[Step] = []
    failure: str | None = None
    slow_path: list[str] = []
    nesting = _Nesting()
    for line in block.splitlines():
        stripped = line.strip()
        head, found, value = stripped.partition(": ")
        if not stripped or set(stripped) == {"-"}:
            continue
        if found and head in ("Flow", "Final flow", "Megaflow", "Datapath actions"):
            heads[head] = value
        elif match := _FAILED.match(stripped):
            failure = match.group(1)
        elif "Datapath actions" in heads:
            if stripped.startswith("- "):
                slow_path.append(stripped.removeprefix("- ").rstrip("."))
        elif "Final flow" not in heads:
            steps.append(_step(line, nesting))
    if "Datapath actions" not in heads and failure is None:
        raise TextError(f"ofproto/trace: no 'Datapath actions:' in {block.strip()[-200:]!r}")
    return Translation(
        recirc_id=recirc_id,
        resumed=resumed,
        flow=heads.get("Flow", ""),
        steps=tuple(steps),
        megaflow=heads.get("Megaflow", ""),
        actions=heads.get("Datapath actions"),
        failure=failure,
        slow_path=tuple(slow_path),
    )


class _Nesting:
    """Which bridge a line belongs to.

    A bridge is printed where an output led into it. Its own lines are deeper than it where the sender goes on
    afterwards, and as deep where that was the sender's last action; so the depth of its first line is what tells.
    """

    def __init__(self) -> None:
        self._open: list[tuple[str, int | None]] = []

    def enter(self, bridge: str) -> None:
        self._open.append((bridge, None))

    def resume(self) -> None:
        """The packet goes on in the bridge where it stopped; what is printed is the one that it first came to."""
        self._open = [(RESUMED, 0)]

    def at(self, depth: int) -> str:
        while self._open:
            bridge, content = self._open[-1]
            if content is None:
                self._open[-1] = (bridge, depth)
                return bridge
            if depth >= content:
                return bridge
            self._open.pop()
        return ""


def _step(line: str, nesting: _Nesting) -> Step:
    text = line.strip()
    depth = (len(line) - len(line.lstrip())) // 4
    if match := _BRIDGE.match(text):
        nesting.enter(match.group(1))
        return Step(depth, "bridge", match.group(1), match.group(1))
    if text == "thaw":
        nesting.resume()
    bridge = nesting.at(depth)
    if match := _RULE.match(text):
        rule = _rule(*match.groups())
        return Step(depth, "rule", bridge, str(rule), rule)
    if text.startswith((">> ", ">>>> ")):
        return Step(depth, "warning", bridge, text.strip("<> "))
    if text.startswith("-> "):
        return Step(depth, "detail", bridge, text.removeprefix("-> "))
    return Step(depth, "action", bridge, text)


def _rule(table: str, match: str | None, priority: str | None, cookie: str | None, miss: str | None) -> Rule:
    if miss is not None or match in _MISS_MATCHES:
        return Rule(int(table), None, 0, 0)
    return Rule(int(table), match or "", int(priority or 0), int(cookie or "0", 0))


def drop_reason(translation: Translation) -> str:
    """Why a packet without data-path actions goes nowhere, in one clause."""
    if translation.failure:
        return f"Open vSwitch gives up: {translation.failure}"
    for index in range(len(translation.steps) - 1, -1, -1):
        step = translation.steps[index]
        if step.kind == "warning":
            return f"{step.bridge}: {step.text}"
        if step.rule is not None and step.rule.match is None:
            return f"{step.bridge}: no rule of table {step.rule.table} matches"
        if step.kind == "action" and step.text == "drop" and not _follows_miss(translation.steps, index):
            return f"{step.bridge}: the rule says drop"
    return "no action sends it out of a port"


def _follows_miss(steps: tuple[Step, ...], index: int) -> bool:
    rule = steps[index - 1].rule if index else None
    return rule is not None and rule.match is None
