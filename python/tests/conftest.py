"""Where recorded problems are."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _shared(variable: str, folder: str) -> Path:
    return Path(os.environ.get(variable, ROOT.parent / "shared" / folder))


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Return the folder of the corpus, or skip the test."""
    folder = _shared("STEEVE_CORPUS", "corpus")
    if not folder.is_dir():
        pytest.skip(f"no corpus at {folder}; STEEVE_CORPUS names another folder")
    return folder


@pytest.fixture(scope="session")
def models() -> Path:
    """Return the folder of TFLite models, or skip the test."""
    folder = _shared("STEEVE_MODELS", "models") / "tflite"
    if not folder.is_dir():
        pytest.skip(f"no models at {folder}")
    return folder


@pytest.fixture(scope="session")
def own_graphs() -> Path:
    """Return the graphs in this repository."""
    return ROOT / "corpus" / "graphs"
