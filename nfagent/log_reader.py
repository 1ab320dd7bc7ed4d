"""Reads what processes of instances have said, wherever they run."""

import codecs
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from nfagent.errors import InvalidError, LaunchError, UnavailableError
from nfagent.launch import Launcher
from nfagent.launch.logs import Part, Position
from nfagent.model import View


@dataclass(frozen=True)
class Said:
    """A part of a log.

    Attributes:
        text: the output; bytes that are not UTF-8 are replaced.
        position: the place behind it. It names neither the location nor the file.
        more: whether another part may follow at once.
    """

    text: str
    position: str
    more: bool


class LogReader:
    """Reads logs by location.

    Args:
        launchers: by location.
        is_cut_off: whether a location is disconnected now.
    """

    def __init__(self, launchers: Mapping[str, Launcher], is_cut_off: Callable[[str], bool]) -> None:
        self._launchers = launchers
        self._is_cut_off = is_cut_off

    def read(self, view: View, after: str | None, most: int, *, older: bool = False) -> Said:
        """Return what an instance has said, after a position or, without one, most recently.

        A process that was moved or restarted has a new log, which begins with its first line.

        Args:
            view: the instance.
            after: the `position` of an earlier part.
            most: bytes, at most.
            older: what the process before it said there, or what was cut off its own log.

        Raises:
            InvalidError: `after` is not a position, or given for older output.
            UnavailableError: the location does not answer.
        """
        if older and after is not None:
            raise InvalidError("invalid", "after: the output before has no position to go on from; omit it", "after")
        wanted = None if after is None else _parsed(after)
        # An instance without a process may have left a log anywhere.
        locations = [view.running.location] if view.running is not None else list(self._launchers)
        for location in locations:
            key = f"{view.instance.id}.{location}"
            begin = None
            if wanted is not None:
                begin = wanted[1] if wanted[0] == _tag(key) else Position(0, 0)
            part = self._part(location, key, begin, most, older=older)
            if part is not None:
                return _said(key, part, most, newest=begin is None)
        return Said("", after or _written("", Position(0, 0)), more=False)

    def _part(self, location: str, key: str, after: Position | None, most: int, *, older: bool) -> Part | None:
        detail = "its log cannot be read now, because its machine does not answer"
        if self._is_cut_off(location):
            raise UnavailableError("log-unavailable", detail)
        try:
            return self._launchers[location].read_log(key, after, most, older=older)
        except LaunchError as error:
            raise UnavailableError("log-unavailable", detail) from error


def _said(key: str, part: Part, most: int, *, newest: bool) -> Said:
    output = part.output
    begin = part.end.offset - len(output)
    if newest and begin > 0:
        output = output[output.find(b"\n") + 1 :]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(output)
    # The rest of a character that is cut off comes with the next part.
    end = replace(part.end, offset=part.end.offset - len(decoder.getstate()[0]))
    return Said(text, _written(key, end), more=len(part.output) == most)


def _tag(key: str) -> int:
    return zlib.crc32(key.encode())


def _written(key: str, position: Position) -> str:
    return f"{_tag(key):x}-{position.file:x}-{position.offset:x}"


def _parsed(text: str) -> tuple[int, Position]:
    try:
        tag, file, offset = (int(word, 16) for word in text.split("-"))
    except ValueError:
        raise InvalidError(
            "invalid", f"after: expected the position of an answer, not {text[:40]!r}", "after"
        ) from None
    return tag, Position(file, offset)
