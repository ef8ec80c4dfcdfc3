"""The examples of the documentation run."""

import doctest
import importlib
import pkgutil
import runpy
from pathlib import Path

import pytest

import galerkin

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
MODULES = [module.name for module in pkgutil.iter_modules(galerkin.__path__) if module.name != "_galerkin"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    if name == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    failed, _ = doctest.testmod(importlib.import_module(f"galerkin.{name}"))
    assert failed == 0


def test_everything_public_says_what_it_is():
    for name in galerkin.__all__:
        value = getattr(galerkin, name)
        assert isinstance(value, str) or value.__doc__, name


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_notebooks_run_from_top_to_bottom(path, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed").use("agg")
    if "galerkin.torch" in path.read_text():
        pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
