"""Every example in a docstring or a page does what it says."""

import doctest
import inspect
import re
from pathlib import Path

import pytest

import steeve
import steeve._errors
import steeve.executorch

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _docstrings():
    """Yield each docstring with its name, also those of native classes and methods, which doctest does not look for."""
    yield "steeve", steeve.__doc__
    yield "steeve.executorch", steeve.executorch.__doc__
    for name in [*steeve.__all__, "executorch.planner", "executorch.Planner"]:
        thing = steeve
        for part in name.split("."):
            thing = getattr(thing, part)
        if not name.startswith("__"):
            yield name, inspect.getdoc(thing)
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_"):
                    yield f"{name}.{member}", inspect.getdoc(value)


DOCSTRINGS = list(_docstrings())


@pytest.mark.parametrize(("name", "text"), DOCSTRINGS, ids=[name for name, _ in DOCSTRINGS])
def test_everything_public_has_a_docstring_whose_examples_run(name: str, text: str | None) -> None:
    assert text, f"{name} has no docstring"
    _run(name, text, {})


def test_the_entry_points_have_examples() -> None:
    with_examples = {name for name, text in DOCSTRINGS if text and ">>>" in text}
    wanted = {"steeve", "plan", "check", "read", "GraphBuilder", "Graph.plan", "Plan", "Plan.at_peak", "Plan.compare"}
    assert wanted | {"Plan.save", "DoesNotFit", "InvalidArgument", "executorch.planner"} <= with_examples


PAGES = ["docs/python.md", "python/README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_pages_run(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = ROOT / page
    if not path.exists():
        pytest.skip(f"no {page} here: this is not a checkout")
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    _run(page, "\n".join(blocks), {"folder": tmp_path})


def _run(name: str, text: str, names: dict[str, object]) -> None:
    test = doctest.DocTestParser().get_doctest(text, {"steeve": steeve, **names}, name, name, 0)
    printed: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    runner.run(test, out=printed.append)
    assert runner.failures == 0, "".join(printed)
