"""Reads the output of ``ovs-appctl ofproto/trace`` (Open vSwitch 3.1).

The text has one translation, or several: each further one continues a packet behind connection tracking, under a
header between two rulers. A translation has, indented, the rules that the packet hit and what their actions did.
"""

import re

from server.errors import TextError
from unoctl.trace.model import Pass, Step

_BRIDGE = re.compile(r'^bridge\("(.*)"\)$')
_RULE = re.compile(r"^(\d+)\. (?:(.*?)(?:, )?priority (\d+)(?:, cookie (0x[0-9a-f]+))?|(No match.*|Packets are .*))$")
_RECIRC = re.compile(r"^recirc\((0x[0-9a-f]+|0)\)\s*-?\s*(.*)$")
_FAILED = re.compile(r"^Translation failed \((.*)\)")
_HEAD = re.compile(r"^(Flow|Final flow|Megaflow|Datapath actions): ?(.*)$")
_RULER = re.compile(r"^={10,}$", re.MULTILINE)
# ofproto/trace does not name the bridge in which a recirculated packet goes on.
_RESUMED = "resumed"
# Rules that Open vSwitch itself installs, for packets that no rule matches.
_MISS_MATCHES = ("reg0=0x1", "reg0=0x2")


def parse(text: str) -> list[Pass]:
    """Return the translations in one output, without outcomes.

    Raises:
        TextError: one has neither actions nor a failure.
    """
    blocks = _RULER.split(text)
    translations = [_translation(None, None, blocks[0])]
    for header, block in zip(blocks[1::2], blocks[2::2], strict=False):
        match = _RECIRC.match(header.strip().partition("\n")[0])
        if match is None:
            raise TextError(f"ofproto/trace: {header.strip()!r} between rulers; expected recirc(ID) - resume ...")
        translations.append(_translation(int(match.group(1), 0), match.group(2), block))
    return translations


def _translation(recirc_id: int | None, resumed: str | None, block: str) -> Pass:
    heads: dict[str, str] = {}
    steps: list[Step] = []
    slow_path: list[str] = []
    failure: str | None = None
    nesting = _Nesting()
    for line in block.splitlines():
        text = line.strip()
        if not text or set(text) == {"-"}:
            continue
        if head := _HEAD.match(line):
            heads[head.group(1)] = head.group(2)
        elif match := _FAILED.match(text):
            failure = match.group(1)
        elif "Datapath actions" in heads:
            if text.startswith("- "):
                slow_path.append(text.removeprefix("- ").rstrip("."))
        elif "Final flow" not in heads:
            steps.append(_step(line, nesting))
    if "Datapath actions" not in heads and failure is None:
        raise TextError(f"ofproto/trace: no 'Datapath actions:' in {block.strip()[-200:]!r}")
    flow, megaflow, actions = heads.get("Flow", ""), heads.get("Megaflow", ""), heads.get("Datapath actions")
    return Pass(recirc_id, resumed, flow, tuple(steps), megaflow, actions, failure, tuple(slow_path))


class _Nesting:
    """The bridges that the packet is in.

    ofproto/trace prints a bridge where an output leads into it. Its lines are deeper than this output if the sender has
    further actions, and as deep if not: only the depth of its first line tells which later lines belong to it.
    """

    def __init__(self) -> None:
        self.open: list[tuple[str, int | None]] = []

    def at(self, depth: int) -> str:
        """Return the bridge of a line."""
        while self.open:
            bridge, content = self.open[-1]
            if content is None:
                self.open[-1] = (bridge, depth)
                return bridge
            if depth >= content:
                return bridge
            self.open.pop()
        return ""


def _step(line: str, nesting: _Nesting) -> Step:
    text = line.strip()
    depth = (len(line) - len(line.lstrip())) // 4
    if match := _BRIDGE.match(text):
        nesting.open.append((match.group(1), None))
        return Step(depth, "bridge", match.group(1), match.group(1))
    if text == "thaw":
        # The packet goes on in the bridge where it stopped; the one in the text is the first that it entered.
        nesting.open = [(_RESUMED, 0)]
    bridge = nesting.at(depth)
    if match := _RULE.match(text):
        return _rule(depth, bridge, match)
    if text.startswith((">> ", ">>>> ")):
        return Step(depth, "warning", bridge, text.strip("<> "))
    if text.startswith("-> "):
        return Step(depth, "detail", bridge, text.removeprefix("-> "))
    return Step(depth, "action", bridge, text)


def _rule(depth: int, bridge: str, rule: re.Match[str]) -> Step:
    table, match, priority, cookie, miss = rule.groups()
    if miss is not None or match in _MISS_MATCHES:
        return Step(depth, "rule", bridge, f"table {table}: no match", int(table), None, 0, "0x0")
    shown = ",".join(term for term in (f"priority={priority}", match) if term)
    text = f"table {table}: {shown}" + (f" cookie {cookie}" if cookie else "")
    return Step(depth, "rule", bridge, text, int(table), match, int(priority), cookie or "0x0")


def drop_reason(translation: Pass) -> str:
    """Return, in one clause, why a packet without data-path actions ends."""
    if translation.failure:
        return f"Open vSwitch gives up: {translation.failure}"
    missed = False
    reason = "no action sends it out of a port"
    for step in translation.steps:
        if step.kind == "warning":
            reason = f"{step.bridge}: {step.text}"
        elif step.kind == "rule" and step.match is None:
            reason = f"{step.bridge}: no rule of table {step.table} matches"
        elif step.text == "drop" and not missed:
            reason = f"{step.bridge}: the rule says drop"
        missed = step.kind == "rule" and step.match is None
    return reason
