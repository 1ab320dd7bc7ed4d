"""A demonstration as a story: its checks in order, then the numbers that they counted, for people or as JSON."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape

from lab.checks import Check, run_check


class Story(Protocol):
    """A demonstration: its checks, and what they counted."""

    def checks(self) -> Sequence[Callable[[], Check]]:
        """Return the checks, in order."""
        ...

    def numbers(self) -> list[tuple[str, str]]:
        """Return the counts for people: a name and a text each."""
        ...

    def document(self) -> dict[str, Any]:
        """Return the counts for ``--format=json``."""
        ...


def tell(story: Story, require_running: Callable[[], None], console: Console, *, as_json: bool = False) -> bool:
    """Run the checks, print their results and the numbers, and return whether all checks hold.

    Args:
        story: the demonstration.
        require_running: raises `LabError`, which names a process that has ended.
        console: for people; on standard error when ``as_json``.
        as_json: print one JSON object on standard output at the end.

    Raises:
        LabError: a process has ended.
    """
    results = [run_check(check, require_running, console) for check in story.checks()]
    _print_numbers(console, story.numbers())
    holds = all(each.holds for each in results)
    if as_json:
        checks = [dataclasses.asdict(each) for each in results]
        print(json.dumps({"holds": holds, "checks": checks} | story.document()))
    return holds


def _print_numbers(console: Console, numbers: list[tuple[str, str]]) -> None:
    """Print them without a table, which would be cut to 80 columns in a pipe."""
    width = max(len(name) for name, _ in numbers)
    console.print()
    for name, text in numbers:
        console.print(f" [bold]{escape(name.ljust(width))}[/bold]  {escape(text)}", highlight=False, soft_wrap=True)
