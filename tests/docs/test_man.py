"""The pages of docs/man match the programs: exactly their commands, options and keys."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
import typer
from pydantic import BaseModel

from lab import cli as lab_cli
from lab.control_plane import find_installed
from nfagent import cli as agent_cli
from nfagent.config import AgentConfig
from server.config import ServerConfig
from unoctl import cli as unoctl_cli

ROOT = Path(__file__).resolve().parents[2]
MAN = ROOT / "docs/man"
PAGES = sorted(MAN.glob("*.md"))

Commands = dict[str, set[str]]
"""Options by command; "" is the program itself."""


def commands_of(program: typer.Typer) -> Commands:
    """Return the options from Typer, which adds some at run time."""
    found = dict(_walk(typer.main.get_command(program), ""))
    found[""] |= {"--install-completion", "--show-completion"}
    return found


def _walk(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
    options = {
        word for each in command.params if each.param_type_name == "option" for word in each.opts + each.secondary_opts
    }
    nested: Mapping[str, Any] = getattr(command, "commands", {})
    if not nested or not name:
        yield name, options | ({"--help", "-h"} if not name else set())
    for inner, each in nested.items():
        yield from _walk(each, f"{name} {inner}".strip())


def commands_of_help(program: str, names: tuple[str, ...]) -> Commands:
    """Return the options from ``--help``."""
    found = {}
    for name in ("", *names):
        argv = [str(find_installed(program)), *name.split(), "--help"]
        text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        options = set(re.findall(r"^ +(-\w)?(?:, | +)?(--[a-z-]+)", text, re.MULTILINE))
        found[name] = {word for pair in options for word in pair if word} - ({"--help", "-h"} if name else set())
    return found


PROGRAMS = {
    "unoctl.1.md": lambda: _without_common(
        commands_of(unoctl_cli.app), {"--format", "--pretty", "--agent", "--cacert"}
    ),
    "uno-lab.1.md": lambda: commands_of(lab_cli.app),
    "nfagent.8.md": lambda: commands_of(agent_cli.app),
    "nf.1.md": lambda: commands_of_help("nf", ("run", "check", "list", "replay", "signer", "completion")),
    "oneswitchd.8.md": lambda: commands_of_help("oneswitchd", ()),
}


def _without_common(commands: Commands, common: set[str]) -> Commands:
    """Remove options of many commands, which the page lists once."""
    return {name: options - common if name else options | common for name, options in commands.items()}


def sections(page: Path) -> dict[str, str]:
    """Return the text by heading."""
    parts = re.split(r"^#{1,3} (.*)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def terms(text: str) -> set[str]:
    """Return the terms that a section defines: the lines before those with a colon."""
    lines = re.findall(r"^(`.*)\n: ", text, re.MULTILINE)
    return {word for line in lines for word in re.findall(r"(?:^|, )`([^`]+)`", line)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_page_lists_exactly_the_options_of_the_program(name: str) -> None:
    wanted = PROGRAMS[name]()
    found = sections(MAN / name)
    headings = {heading: text for heading, text in found.items() if heading in wanted}
    assert set(wanted) - {""} == set(headings), "commands and headings"
    for command, options in wanted.items():
        where = found["Options"] if command == "" else headings[command]
        assert terms(where) == options, f"{name}: {command or 'Options'}"


def keys_of(model: type[BaseModel], title: str) -> dict[str, set[str]]:
    """Return keys by heading. Inline tables belong to their table: ``link.local``."""
    found: dict[str, set[str]] = {title: set()}
    for name, key in model.model_fields.items():
        inner, is_list = _model_in(key.annotation)
        path = name if title == "Top level" else f"{title.strip('[]')}.{name}"
        if inner is None:
            found[title].add(name)
        elif name in INLINE:
            found[title] |= {name} | {f"{name}.{each}" for each in inner.model_fields}
        else:
            if path.count("."):
                found[title] |= {name} if is_list else set()
            found |= keys_of(inner, f"[[{path}]]" if is_list else f"[{path}]")
    return found


INLINE = ("link", "ssh", "wires")


def _model_in(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the table that a key holds, if any, and whether it holds several."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    origin = get_origin(annotation)
    arguments = get_args(annotation)[:1] if origin is Annotated else get_args(annotation)
    if origin in (list, Annotated, Union, UnionType):
        for each in arguments:
            model, is_list = _model_in(each)
            if model is not None:
                return model, is_list or origin is list
    return None, False


@pytest.mark.parametrize(("name", "model"), [("server.toml.5.md", ServerConfig), ("agent.toml.5.md", AgentConfig)])
def test_the_page_lists_exactly_the_keys_of_the_file(name: str, model: type[BaseModel]) -> None:
    wanted = {title: keys for title, keys in keys_of(model, "Top level").items() if keys}
    found = {title: terms(text) for title, text in sections(MAN / name).items() if title in wanted or title[0] == "["}
    assert found == wanted


@pytest.mark.parametrize(("name", "model"), [("server.toml.5.md", ServerConfig), ("agent.toml.5.md", AgentConfig)])
def test_the_program_accepts_the_example(name: str, model: Any) -> None:
    text = sections(MAN / name)["Example"]
    model.parse(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0], Path("example.toml"))


@pytest.mark.skipif(shutil.which("pandoc") is None, reason="pandoc is not installed; tools/prepare man installs it")
def test_pandoc_renders_every_page(tmp_path: Path) -> None:
    made = subprocess.run(
        ["make", "-s", "man", f"MAN={tmp_path}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [page.stem for page in PAGES]
    for page in tmp_path.iterdir():
        text = page.read_text()
        name, section = page.name.rpartition(".")[::2]
        assert f'.TH "{name}" "{section}"' in text
        assert f"\n{name} - " in text
        if shutil.which("groff"):
            said = subprocess.run(
                ["groff", "-t", "-man", "-ww", "-z", page], capture_output=True, text=True, check=False
            )
            assert said.stderr == ""
