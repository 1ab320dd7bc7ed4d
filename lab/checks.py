"""What a demonstration shows, piece by piece, and how that is printed."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from lab.errors import LabError


@dataclass(frozen=True)
class Check:
    """One thing that was shown.

    Attributes:
        title: what.
        holds: whether it is as promised.
        detail: what was seen; the first line goes beside the title.
        figures: for --format=json.
    """

    title: str
    holds: bool
    detail: str
    figures: dict[str, Any] = field(default_factory=dict)


def run_check(check: Callable[[], Check], require_running: Callable[[], None], console: Console) -> Check:
    """Run a check and print what it shows; its docstring is shown meanwhile.

    Args:
        check: what to run.
        require_running: raises `LabError`, which names a process that has ended.
        console: for people.

    Raises:
        LabError: a process has ended, which explains whatever the check stumbled over.
    """
    with console.status((check.__doc__ or "").strip().partition("\n")[0]):
        try:
            result = check()
        except (LabError, OSError, subprocess.SubprocessError, TimeoutError):
            require_running()
            raise
    require_running()
    mark = "[green]ok[/green]  " if result.holds else "[red]FAIL[/red]"
    first, *rest = result.detail.splitlines()
    console.print(f"{mark} {result.title}: {first}", soft_wrap=True)
    for line in rest:
        console.print(f"       {line}", soft_wrap=True)
    return result
