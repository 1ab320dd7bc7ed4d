"""Examples in docstrings."""

import doctest
import importlib
import pkgutil

import pytest

import placement

MODULES = sorted(
    info.name
    for info in pkgutil.walk_packages(placement.__path__, "placement.")
    if not info.name.endswith(("_worker", "_lagcut"))
)


@pytest.mark.parametrize("name", ["placement", *MODULES])
def test_the_examples_of_docstrings_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0
