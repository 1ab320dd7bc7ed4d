from collections.abc import Sequence

_Form = tuple[Sequence[tuple[int, Sequence[int]]], Sequence[tuple[int, int]]]
_Dual = tuple[list[int], list[int]]
_Step = tuple[str, _Dual | None, list[tuple[int, int]], list[int]]

def minimise(
    sites: Sequence[Sequence[int]],
    arcs: Sequence[tuple[int, int, int]],
    rows: Sequence[tuple[_Form, int]],
    goal: _Form,
    dual: tuple[Sequence[int], int, Sequence[int]] | None,
    start: Sequence[int] | None,
    seconds: float,
    max_labels: int,
    gap: float,
) -> tuple[str, list[int] | None, int, _Dual, list[_Step]]: ...
