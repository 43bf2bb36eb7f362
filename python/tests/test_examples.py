"""The examples of the repository run."""

import io
import json
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"


@pytest.fixture(autouse=True)
def _checkout() -> None:
    if not EXAMPLES.is_dir():
        pytest.skip("this is not a checkout")


def test_the_compiler_prints_calls_and_says_what_does_not_fit(tmp_path: Path) -> None:
    program = [sys.executable, str(EXAMPLES / "own_compiler.py")]
    done = subprocess.run([*program, "-o", str(tmp_path / "plan.svg")], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("static char arena[") and done.stdout.count("arena + ") > 30
    assert (tmp_path / "plan.svg").read_text().startswith("<svg ")
    done = subprocess.run([*program, "--capacity", "1000"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("arena: does not fit") and "relu" in done.stderr


# Jupyter runs a notebook in its own folder.
@pytest.mark.parametrize("folder", [EXAMPLES, EXAMPLES.parents[1]], ids=["its own folder", "the checkout"])
def test_the_cells_of_the_notebook_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    notebook = json.loads((EXAMPLES / "plans.ipynb").read_text())
    names: dict[str, object] = {}
    shown = io.StringIO()
    with redirect_stdout(shown):
        for cell in notebook["cells"]:
            if cell["cell_type"] != "code":
                continue
            assert cell["outputs"] == [], "a notebook is kept without what it has shown"
            *lines, last = "".join(cell["source"]).splitlines()
            try:
                exec("\n".join(lines), names)
                value = eval(last, names)
            except SyntaxError:
                exec("\n".join([*lines, last]), names)
                value = None
            if hasattr(value, "_repr_html_"):
                print(value._repr_html_()[:40])
    printed = shown.getvalue()
    assert printed.count("<div") == 3 and "does not fit" in printed
