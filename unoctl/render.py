"""Output to the operator: tables with colours on a terminal, plain columns in a pipe, or JSON."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from server.errors import ServerError

# Wide enough to never cut a cell in a pipe; lines are stripped at their end.
PIPE_WIDTH = 2000

STYLES = {
    "up": "green",
    "connected": "green",
    "ok": "green",
    "syncing": "yellow",
    "connecting": "yellow",
    "backoff": "yellow",
    "warn": "yellow",
    "down": "red",
    "fail": "bold red",
}


class Format(StrEnum):
    """The values of ``--format``."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True)
class View:
    """A command's result: plain data for ``--format=json``, and text for people.

    ``exit_status`` is 0 on success.
    """

    data: Any
    body: RenderableType
    exit_status: int = 0


class Output:
    """The destination of results, notes and errors. Only results go to stdout, everything else to stderr."""

    def __init__(
        self, chosen: Format, pretty: bool, stdout: TextIO | None = None, stderr: TextIO | None = None
    ) -> None:
        self.format = chosen
        self._pretty = pretty
        self._stdout = stdout or sys.stdout
        self._out = _console(self._stdout)
        self._err = _console(stderr or sys.stderr)

    def show(self, view: View) -> None:
        """Print a result."""
        if self.format is Format.JSON:
            print(json.dumps(view.data, indent=2 if self._pretty else None), file=self._stdout)
        elif self._out.is_terminal:
            self._out.print(view.body, soft_wrap=isinstance(view.body, Text))
        else:
            with self._out.capture() as captured:
                self._out.print(view.body, soft_wrap=isinstance(view.body, Text))
            for line in captured.get().splitlines():
                print(line.rstrip(), file=self._stdout)

    def pass_text(self, text: str) -> None:
        """Print a program's text as it is, in JSON as an object; a terminal gets no control characters from it."""
        if self.format is Format.JSON:
            print(json.dumps({"text": text}), file=self._stdout, flush=True)
            return
        shown = "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in text)
        print(shown if self._out.is_terminal else text, end="", file=self._stdout, flush=True)

    def note(self, text: str) -> None:
        """Print a note, which is not part of the result."""
        self._err.print(Text(f"unoctl: {text}", style="dim"), soft_wrap=True)

    def error(self, error: ServerError) -> None:
        """Report a failure; as JSON if the result would have been JSON."""
        if self.format is Format.JSON:
            problem = {"error": {"code": error.code, "detail": str(error)}}
            self._err.out(json.dumps(problem), highlight=False)
        else:
            self._err.print(Text.assemble(("unoctl: ", "bold red"), str(error)), soft_wrap=True)

    @contextmanager
    def progress(self, text: str) -> Iterator["Progress"]:
        """Show progress: a spinner on a terminal, one line per change elsewhere."""
        with Progress(self._err, text) as running:
            yield running


class Progress:
    """A spinner with a changing text, or plain lines if stderr is not a terminal."""

    def __init__(self, console: Console, text: str) -> None:
        self._console = console
        self._status = console.status(text) if console.is_terminal else None
        self._said = text

    def __enter__(self) -> "Progress":
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()

    def update(self, text: str) -> None:
        """Show the current action; the same text again prints nothing."""
        if text == self._said:
            return
        self._said = text
        if self._status:
            self._status.update(text)
        else:
            self._console.print(Text(f"unoctl: {text}"), soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> Table:
    """Build a plain table: no frame, a header, numbers to the right. None prints as ``-``."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell(value) for value in row))
    return made


def cell(value: object) -> Text:
    """Format one value, coloured if it is a state."""
    if isinstance(value, Text):
        return value
    text = "-" if value is None else str(value)
    return Text(text, style=STYLES.get(text, ""))


def tree_text(lines: Iterable[tuple[int, Text | str]]) -> Text:
    """Indent lines, four spaces a level, like ``ovs-vsctl show``."""
    text = Text()
    for depth, line in lines:
        if text:
            text.append("\n")
        text.append("    " * depth)
        text.append_text(line if isinstance(line, Text) else Text(line))
    return text


def state(word: str) -> Text:
    """Colour a state word."""
    return Text(word, style=STYLES.get(word, ""))


def _console(stream: TextIO) -> Console:
    terminal = stream.isatty()
    return Console(file=stream, highlight=False, width=None if terminal else PIPE_WIDTH, emoji=False, markup=False)
