"""Prometheus' text format, version 0.0.4, of this agent's figures."""

from collections.abc import Mapping
from typing import Literal


def labels(**values: str) -> str:
    """Format labels with their values."""
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return ",".join(f'{name}="{value.translate(escapes)}"' for name, value in values.items())


def family(name: str, kind: Literal["gauge", "counter"], what: str, values: Mapping[str, float]) -> str:
    """Format a metric with its samples, by their labels; nothing without a sample."""
    if not values:
        return ""
    full = f"nfagent_{name}_total" if kind == "counter" else f"nfagent_{name}"
    lines = [f"# HELP {full} {what}", f"# TYPE {full} {kind}"]
    lines += [f"{full}{{{each}}} {value}" if each else f"{full} {value}" for each, value in values.items()]
    return "\n".join(lines) + "\n"
