"""Console blocks of Markdown pages, run unchanged.

Blocks fenced as ``console`` are run; those fenced as ``console elsewhere`` need more than a test has. A line that
begins with ``$ `` is a command, ``> `` continues it; the following lines are its output, in which ``...`` matches
anything in a line, or any lines if alone. Output that the page omits is not compared. All blocks of a page run in one
shell.
"""

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.programs import find_program

_FENCE = re.compile(r"^ {0,3}```(.*)$")
_MARK = "\x01"


@dataclass(frozen=True)
class Block:
    """A fenced block; ``line`` is the number of its first line in the page, from 1."""

    language: str
    words: tuple[str, ...]
    lines: tuple[str, ...]
    line: int

    @property
    def text(self) -> str:
        """Return the block's content."""
        return "".join(f"{line}\n" for line in self.lines)


@dataclass
class Command:
    """A command and its output according to the page; empty if the page shows none."""

    text: str
    line: int
    shown: list[str] = field(default_factory=list)


def blocks(page: Path) -> list[Block]:
    """Return all fenced blocks of a page."""
    found: list[Block] = []
    opened: tuple[int, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if fence is None:
            lines.append(line)
        elif opened is None:
            opened, lines = (number + 1, fence[1]), []
        else:
            language, *words = opened[1].split() or [""]
            found.append(Block(language, tuple(words), tuple(lines), opened[0]))
            opened = None
    assert opened is None, f"{page}: the block before line {opened[0] if opened else 0} has no end"
    return found


def commands(page: Path, *, also_elsewhere: bool = False) -> list[Command]:
    """Return the commands of a page: those to run, or all of them."""
    found: list[Command] = []
    for block in blocks(page):
        if block.language != "console" or ("elsewhere" in block.words and not also_elsewhere):
            continue
        for offset, line in enumerate(block.lines):
            if line.startswith("$ "):
                found.append(Command(line[2:], block.line + offset))
            elif line.startswith("> "):
                found[-1].text += "\n" + line[2:]
            else:
                found[-1].shown.append(line)
    return found


def run(
    page: Path, directory: Path, *, variables: Mapping[str, str], replace: Mapping[str, str] | None = None
) -> list[str]:
    """Run a page's commands in a directory and compare what they print.

    Args:
        page: Markdown.
        directory: where the shell starts.
        variables: of its environment.
        replace: paths and addresses of the page, by what stands for them here.

    Returns:
        What each command printed.

    Raises:
        AssertionError: a command failed, or did not print what the page says; with page, line, and both texts.
    """
    wanted = commands(page)
    assert wanted, f"{page}: no command to run"
    # Ending the shell's process group also ends everything that the page has started.
    script = ["exec 2>&1 </dev/null", "trap 'trap - TERM; kill 0' TERM"]
    for command in wanted:
        script += [_replaced(command.text, replace or {}), f"printf '{_MARK}%s{_MARK}' $?"]
    with subprocess.Popen(
        [find_program("setpriv"), "--pdeathsig", "TERM", "bash", "--norc", "-c", "\n".join(script)],
        cwd=directory,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            printed = _read_marks(shell, len(wanted))
        finally:
            os.killpg(shell.pid, signal.SIGTERM)
    _compare(page, wanted, printed, replace or {})
    return [text for text, _ in printed]


def _read_marks(shell: "subprocess.Popen[str]", count: int) -> list[tuple[str, int]]:
    """Output and status of each command; fewer if the shell ended.

    The end of the pipe is not awaited: what runs in the background may hold it open.
    """
    assert shell.stdout is not None
    done: list[tuple[str, int]] = []
    text = ""
    while len(done) < count:
        character = shell.stdout.read(1)
        if not character:
            break
        if character != _MARK:
            text += character
            continue
        status = ""
        while (character := shell.stdout.read(1)) not in (_MARK, ""):
            status += character
        done.append((text, int(status)))
        text = ""
    return done if len(done) == count else [*done, (text, -1)]


def _compare(
    page: Path, wanted: Sequence[Command], printed: Sequence[tuple[str, int]], replace: Mapping[str, str]
) -> None:
    for command, (text, status) in zip(wanted, printed, strict=False):
        where = f"{page}:{command.line}: {command.text}"
        assert status == 0, f"{where}\nended with status {status} and said\n{text}"
        if command.shown:
            shown = _replaced("\n".join(command.shown), replace)
            assert matches(shown, text), f"{where}\nprinted\n{text}\nand the page shows\n{shown}"


def _replaced(text: str, replace: Mapping[str, str]) -> str:
    for old, new in replace.items():
        text = text.replace(old, new)
    return text


def matches(shown: str, printed: str) -> bool:
    """Tell whether a program printed what a page shows.

    Example:
        >>> matches("a ... c", "a b c"), matches("a\\n...\\nd", "a\\nb\\nc\\nd"), matches("a", "a\\nb")
        (True, True, False)
    """
    lines = [
        r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line.rstrip()).replace(r"\.\.\.", ".*") + r"[ \t]*\n"
        for line in shown.strip("\n").splitlines()
    ]
    return re.fullmatch("".join(lines), printed.strip("\n") + "\n") is not None
