_Form = tuple[list[tuple[int, list[int]]], list[tuple[int, int]]]

def minimise(
    sites: list[list[int]],
    arcs: list[tuple[int, int, int]],
    rows: list[tuple[_Form, int]],
    goal: _Form,
    dual: tuple[list[int], int, list[int]] | None,
    start: list[int] | None,
    seconds: float,
    max_labels: int,
    gap: float,
    cutoff: int,
) -> tuple[str, list[int] | None, int, list[tuple[list[int], list[int]]], list[int]]: ...
