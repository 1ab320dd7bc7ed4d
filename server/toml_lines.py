"""The line of each key in a TOML text.

``tomllib`` returns values without positions, but an error in a configuration file should name its line. This scans a
text that ``tomllib`` has accepted, so it need not validate it.
"""

from collections.abc import Iterator

Path = tuple[str | int, ...]

_BLANK = " \t\r\n"
_ENDS_SCALAR = ",]}#\n"


def key_lines(text: str) -> dict[Path, int]:
    r"""Map each path (keys, and indices of arrays) in ``text`` to its line number, from 1.

    Args:
        text: a valid TOML document.

    Example:
        >>> key_lines('[a]\nb = [\n 1,\n 2]')[("a", "b", 1)]
        4
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tables_in: dict[Path, int] = {}  # length of each [[array of tables]] so far
        self.lines: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        for char in self._tokens():
            if char == "[":
                table = self._header()
            else:
                self._pair(table)

    def _tokens(self) -> Iterator[str]:
        """Yield each character that is neither blank nor comment, until the end."""
        while True:
            self._skip_blank()
            if self._at >= len(self._text):
                return
            yield self._text[self._at]

    def _skip_blank(self) -> None:
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif char in _BLANK:
                self._at += 1
            else:
                return

    def _note(self, path: Path, at: int) -> None:
        self.lines.setdefault(path, self._text.count("\n", 0, at) + 1)

    def _header(self) -> Path:
        start = self._at
        is_array = self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        path = self._resolve(self._dotted("]"))
        self._at += 2 if is_array else 1
        if is_array:
            self._note(path, start)
            index = self._tables_in.get(path, 0)
            self._tables_in[path] = index + 1
            path = (*path, index)
        self._note(path, start)
        return path

    def _resolve(self, keys: list[str]) -> Path:
        """Return ``keys`` of a header, with the index of the newest table of each array of tables."""
        path: Path = ()
        for key in keys[:-1]:
            path = (*path, key)
            if path in self._tables_in:
                path = (*path, self._tables_in[path] - 1)
        return (*path, keys[-1])

    def _pair(self, table: Path) -> None:
        start = self._at
        path = table
        for key in self._dotted("="):
            path = (*path, key)
            self._note(path, start)
        self._at += 1
        self._skip_blank()
        self._value(path)

    def _dotted(self, end: str) -> list[str]:
        """Return the keys up to ``end``, which is left unread."""
        keys = []
        while True:
            self._skip_blank()
            char = self._text[self._at]
            if char == end:
                return keys
            if char == ".":
                self._at += 1
            elif char in "\"'":
                start = self._at
                self._string()
                keys.append(self._text[start + 1 : self._at - 1])
            else:
                start = self._at
                while self._text[self._at] not in f".{end} \t":
                    self._at += 1
                keys.append(self._text[start : self._at])

    def _value(self, path: Path) -> None:
        char = self._text[self._at]
        if char in "\"'":
            self._string()
        elif char == "[":
            self._array(path)
        elif char == "{":
            self._inline_table(path)
        else:
            while self._at < len(self._text) and self._text[self._at] not in _ENDS_SCALAR:
                self._at += 1

    def _array(self, path: Path) -> None:
        self._at += 1
        index = 0
        for char in self._tokens():
            if char == "]":
                self._at += 1
                return
            if char == ",":
                self._at += 1
                continue
            self._note((*path, index), self._at)
            self._value((*path, index))
            index += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        for char in self._tokens():
            if char == "}":
                self._at += 1
                return
            if char == ",":
                self._at += 1
            else:
                self._pair(path)

    def _string(self) -> None:
        quote = self._text[self._at]
        fence = quote * 3 if self._text.startswith(quote * 3, self._at) else quote
        self._at += len(fence)
        while not self._text.startswith(fence, self._at):
            self._at += 2 if quote == '"' and self._text[self._at] == "\\" else 1
        self._at += len(fence)
        while len(fence) == 3 and self._text.startswith(quote, self._at):
            self._at += 1  # up to two more quotes belong to the text of a multi-line string
