"""Reads the output of ``ovs-appctl ofproto/trace`` (Open vSwitch 3.1).

Translations after the first continue a packet behind connection tracking, under a header between two rulers.
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
_MISS_MATCHES = ("reg0=0x1", "reg0=0x2")  # Open vSwitch's own rules, for packets that no rule matches


def parse(text: str) -> list[Pass]:
    """Return the translations in one output, without outcomes; TextError if the output is different."""
    blocks = _RULER.split(text)
    translations = [_translation(None, None, blocks[0])]
    for header, block in zip(blocks[1::2], blocks[2::2], strict=False):
        match = _RECIRC.match(header.strip().partition("\n")[0])
        if match is None:
            raise TextError(f"ofproto/trace: {header.strip()!r} between rulers; expected recirc(ID) - resume ...")
        translations.append(_translation(int(match[1], 0), match[2], block))
    return translations


def _translation(recirc_id: int | None, resumed: str | None, block: str) -> Pass:
    heads: dict[str, str] = {}
    steps: list[Step] = []
    slow_path: list[str] = []
    failure: str | None = None
    bridges: list[tuple[str, int | None]] = []
    for line in block.splitlines():
        text = line.strip()
        if not text or set(text) == {"-"}:
            continue
        if head := _HEAD.match(line):
            heads[head[1]] = head[2]
        elif match := _FAILED.match(text):
            failure = match[1]
        elif "Datapath actions" in heads:
            if text.startswith("- "):
                slow_path.append(text.removeprefix("- ").rstrip("."))
        elif "Final flow" not in heads:
            steps.append(_step(line, bridges))
    if "Datapath actions" not in heads and failure is None:
        raise TextError(f"ofproto/trace: no 'Datapath actions:' in {block.strip()[-200:]!r}")
    flow, megaflow, actions = heads.get("Flow", ""), heads.get("Megaflow", ""), heads.get("Datapath actions")
    return Pass(recirc_id, resumed, flow, tuple(steps), megaflow, actions, failure, tuple(slow_path))


def _step(line: str, bridges: list[tuple[str, int | None]]) -> Step:
    """Read a line; ``bridges``: those that the packet is in, each with the depth of its lines."""
    text = line.strip()
    depth = (len(line) - len(line.lstrip())) // 4
    if match := _BRIDGE.match(text):
        bridges.append((match[1], None))
        return Step(depth, "bridge", match[1], match[1])
    if text == "thaw":
        # The packet goes on in the bridge where it stopped; the one in the text is the first that it entered.
        bridges[:] = [("resumed", 0)]
    # The lines of a bridge are deeper than the output that leads into it if the sender has further actions, and as deep
    # if not: only the depth of its first line tells which later lines belong to it.
    while bridges and bridges[-1][1] is not None and depth < bridges[-1][1]:
        bridges.pop()
    if bridges and bridges[-1][1] is None:
        bridges[-1] = (bridges[-1][0], depth)
    bridge = bridges[-1][0] if bridges else ""
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
