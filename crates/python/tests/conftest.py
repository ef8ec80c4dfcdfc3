"""What several tests need."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import galerkin as gk

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def command():
    """Runs the command `galerkin` in a folder."""
    path = Path(os.environ.get("GALERKIN_COMMAND", REPOSITORY / "target" / "release" / "galerkin"))
    if not path.exists():
        pytest.skip(f"the command is not built: {path}; `cargo build --workspace --release` makes it, GALERKIN_COMMAND names another one")

    def run(*words, cwd):
        done = subprocess.run([path, *map(str, words)], cwd=cwd, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def waves():
    """Sines of random phases and their derivatives on a circle of 32 points."""
    phases = np.random.default_rng(1).uniform(0, 2 * np.pi, (60, 1))
    x = 2 * np.pi * np.arange(32) / 32
    return np.sin(x + phases), np.cos(x + phases)


@pytest.fixture(scope="session")
def trained(waves, tmp_path_factory):
    """A short run of a small network."""
    out = tmp_path_factory.mktemp("runs") / "waves"
    data = gk.Dataset(*waves, axes=("x",), periodic=("x",))
    return gk.train(data, network="fno", epochs=2, out=out, settings={"network.spectral.modes": 6}, progress=False)
