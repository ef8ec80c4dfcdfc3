"""Trained models: shapes, kinds of arrays, errors, and the bytes of the command."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import galerkin as gk
from conftest import REPOSITORY


@pytest.fixture(scope="module")
def burgers():
    return gk.load(REPOSITORY / "pretrained" / "burgers")


@pytest.fixture(scope="module")
def u0():
    return np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)


def test_the_answer_has_the_axes_of_the_input(burgers, u0):
    all_axes = burgers(u0[..., None])
    assert all_axes.shape == (3, 64, 1) and all_axes.dtype == np.float32
    assert np.array_equal(burgers(u0), all_axes[..., 0])
    assert np.array_equal(burgers(u0[1]), all_axes[1, :, 0])


def test_doubles_views_and_lists_are_taken(burgers, u0):
    expected = burgers(u0)
    assert np.array_equal(burgers(u0.astype(np.float64)), expected)
    assert np.array_equal(burgers(np.asfortranarray(u0)), expected)
    assert np.array_equal(burgers(np.repeat(u0, 2, axis=1)[:, ::2]), expected)
    assert np.array_equal(burgers(u0[::-1])[::-1], expected)
    assert np.array_equal(burgers(u0.tolist()), expected)
    assert np.array_equal(burgers(memoryview(u0)), expected)


def test_dlpack_is_taken(burgers, u0):
    class Lent:
        """An array that can only be lent."""

        def __array__(self, *_, **__):
            raise TypeError("not converted on its own")

        def __dlpack__(self, **words):
            return u0.__dlpack__(**words)

        def __dlpack_device__(self):
            return u0.__dlpack_device__()

    assert np.array_equal(burgers(Lent()), burgers(u0))


def test_the_input_is_not_changed(burgers, u0):
    before = u0.copy()
    burgers(u0)
    assert np.array_equal(u0, before)


def test_xarray_comes_back_as_xarray(burgers, u0):
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    given = xarray.DataArray(u0, dims=("member", "x"), coords={"member": [4, 5, 6], "x": np.arange(64) / 64})
    found = burgers(given)
    assert found.dims == ("member", "x") and list(found.coords["member"]) == [4, 5, 6]
    assert np.array_equal(found.values, burgers(u0))


def test_predictions_are_the_bytes_of_the_command(burgers, u0, command, tmp_path):
    np.save(tmp_path / "x.npy", u0)
    command("predict", REPOSITORY / "pretrained" / "burgers", "--input", "x.npy", "--output", "y.npy", cwd=tmp_path)
    assert np.load(tmp_path / "y.npy").tobytes() == burgers(u0).tobytes()


def test_threads_change_no_bit(burgers, u0):
    before, expected = gk.num_threads(), burgers(u0)
    try:
        for threads in (1, 3):
            gk.set_num_threads(threads)
            assert gk.num_threads() == threads
            assert np.array_equal(burgers(u0), expected)
    finally:
        gk.set_num_threads(before)
    with pytest.raises(ValueError, match="threads = 0: expected 1 to"):
        gk.set_num_threads(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_computes(burgers, u0):
    """It has none of the threads of its parent. In a process of its own, which has no other threads to lose."""
    program = """
        import os, sys, numpy as np, galerkin as gk
        model, u0 = gk.load(sys.argv[1]), np.random.default_rng(0).standard_normal((3, 64))
        for threads in (None, 3):
            if threads:
                gk.set_num_threads(threads)
            expected = model(u0)
            child = os.fork()
            if child == 0:
                os._exit(0 if np.array_equal(model(u0), expected) and gk.num_threads() == (threads or gk.num_threads()) else 1)
            assert os.waitpid(child, 0)[1] == 0
        """
    words = [sys.executable, "-c", textwrap.dedent(program), str(burgers.path)]
    # A child that waits for ever is ended by the time-out.
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_wrong_inputs_are_value_errors_with_expected_and_found(burgers):
    with pytest.raises(ValueError, match=r"expected shape \(samples, n, 1\), found \[2, 2, 2, 2\]"):
        burgers(np.zeros((2, 2, 2, 2)))
    with pytest.raises(ValueError, match="expected real numbers, found complex128"):
        burgers(np.zeros(64, complex))
    with pytest.raises(ValueError, match="expected real numbers, found <U1"):
        burgers(["a", "b"])
    with pytest.raises(ValueError, match=r"NaN at \[0, 3, 0\].*allow_nan=True"):
        burgers(np.where(np.arange(64) == 3, np.nan, 0))
    with pytest.raises(ValueError, match="modes"):
        burgers(np.zeros(8))


def test_what_is_not_there_or_no_model(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        gk.load(tmp_path / "nothing")
    with pytest.raises((FileNotFoundError, ValueError), match="config.toml|model.safetensors"):
        gk.load(tmp_path)
    (tmp_path / "noise.safetensors").write_bytes(b"not a weight file at all")
    with pytest.raises(ValueError, match="noise.safetensors"):
        gk.load(tmp_path / "noise.safetensors")


def test_a_look_inside(burgers, u0):
    latents = burgers.latents(u0)
    assert list(latents)[1] == "encoder_layers.0" and latents["encoder_layers.0"].shape == (3, 64, 96)
    # The last stage is the prediction.
    assert np.array_equal(list(latents.values())[-1][..., 0], burgers(u0))
    # One head of 96 features and a coordinate.
    assert burgers.attention(u0, layer=2).shape == (3, 1, 97, 97)
    with pytest.raises(ValueError, match="layers are 0 to 3"):
        burgers.attention(u0, layer=4)
    with pytest.raises(ValueError, match="expected 0 or more"):
        burgers.attention(u0, layer=-1)
    assert burgers.config["encoder"]["layers"] == 4
    assert sum(weights.size for weights in burgers.parameters.values()) == 530_305
    assert "530,305 parameters" in repr(burgers)
    assert "530,305" in burgers._repr_html_()


def test_the_interpreter_runs_while_a_model_computes(burgers):
    """Another thread counts while a prediction is under way."""
    import threading

    counted, over = [0], threading.Event()

    def count():
        while not over.is_set():
            counted[0] += 1
            over.wait(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    burgers(np.zeros((64, 2048)))
    after = counted[0]
    over.set()
    thread.join()
    # The prediction takes some hundred milliseconds: with the lock held the other thread would not have counted at all.
    assert after - before >= 3
