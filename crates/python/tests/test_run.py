"""Trainings: the bytes of the command, interruptions, errors, evaluations."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import galerkin as gk

SETTINGS = {"network.spectral.layers": 2, "data.train": 48}


def test_weights_are_the_bytes_of_the_command(waves, command, tmp_path):
    data = gk.Dataset(*waves, axes=("x",), periodic=("x",))
    data.save(tmp_path / "waves")
    run = gk.train(data, network="fno", epochs=2, out=tmp_path / "ours", settings=SETTINGS, progress=False)
    words = ["--set", "train.epochs=2", "--set", "network.spectral.layers=2", "--set", "data.train=48"]
    command("train", "--data", "waves", "--network", "fno", "--out", "theirs", *words, cwd=tmp_path)
    for name in ("model.safetensors", "best.safetensors", "log.jsonl"):
        assert (run.path / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()
    theirs = gk.Run(tmp_path / "theirs")
    assert {**run.config, "data": None} == {**theirs.config, "data": None}


def test_a_preset_is_the_bytes_of_the_command(command, tmp_path):
    data = gk.generate("burgers", samples=24, grid=64, out=tmp_path / "burgers", progress=False)
    words = {"data.train": 16, "data.validation": 4, "data.test": 4, "network.encoder.layers": 1}
    run = gk.train(data, network="burgers", epochs=1, out=tmp_path / "ours", settings=words, progress=False)
    sets = [word for key, value in {**words, "train.epochs": 1}.items() for word in ("--set", f"{key}={value}")]
    command("train", "burgers", "--data", "burgers", "--out", "theirs", *sets, cwd=tmp_path)
    assert (run.path / "model.safetensors").read_bytes() == (tmp_path / "theirs" / "model.safetensors").read_bytes()


def test_a_run_knows_itself(trained, tmp_path):
    history = trained.history
    assert list(history["epoch"]) == [1, 2] and history["validation"][1] < history["validation"][0]
    assert trained.finished and trained.config["train"]["epochs"] == 2
    # The dataset had no folder: the run has it.
    assert trained.dataset.path == trained.path / "dataset" and len(trained.dataset) == 60
    assert repr(trained).endswith(f"2 of 2 epochs, validation error {history['validation'][-1]:.3g}")
    assert "<svg" in trained._repr_html_()
    assert trained.best(trained.dataset.inputs[:2]).shape == (2, 32, 1)
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("agg")
    trained.plot().savefig(tmp_path / "run.png")


def test_errors_are_those_of_the_predictions(trained):
    evaluation, coarse = trained.evaluate(grid=[32, 16])
    assert evaluation.points == (32,) and coarse.points == (16,) and evaluation.solver is None
    # The last tenth is for the test.
    assert evaluation.samples == 6 and len(evaluation.per_sample) == 6
    data = trained.dataset
    found = trained.model(data.inputs)
    errors = np.linalg.norm(found - data.targets, axis=(1, 2)) / np.linalg.norm(data.targets, axis=(1, 2))
    # Norms of numpy are of f32: some roundings of 32 terms.
    matches = [np.abs(errors / error - 1).min() < 1e-5 for error in evaluation.per_sample]
    assert all(matches)
    assert evaluation.relative_l2 == pytest.approx(evaluation.per_sample.mean())


def test_other_samples_are_evaluated_from_memory(trained, waves):
    other = gk.Dataset(waves[1], -waves[0], periodic="x")
    (evaluation,) = trained.evaluate(data=other)
    assert evaluation.samples == 60 and 0 < evaluation.relative_l2 < 1


def test_a_callback_hears_everything_and_stops(waves, tmp_path):
    data, heard = gk.Dataset(*waves, periodic="x"), []

    def callback(event):
        heard.append(event)
        return event.get("step") != 3

    run = gk.train(data, network="fno", epochs=1, out=tmp_path / "run", settings=SETTINGS, callback=callback, progress=False)
    assert not run.finished and [event["step"] for event in heard if event["event"] == "step"] == [1, 2, 3]
    # Nothing is told after the answer that ended it.
    assert heard[0]["event"] == "started" and heard[-1]["step"] == 3
    assert list((run.path / "checkpoint").iterdir())
    whole = gk.train(data, network="fno", epochs=1, out=tmp_path / "whole", settings=SETTINGS, progress=False)
    again = gk.resume(tmp_path / "run", progress=False)
    assert again.finished
    assert (again.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


def test_an_exception_of_a_callback_leaves_a_checkpoint(waves, tmp_path):
    def callback(event):
        if event["event"] == "step":
            raise ZeroDivisionError("of the callback")

    with pytest.raises(ZeroDivisionError, match="of the callback"):
        gk.train(gk.Dataset(*waves), network="fno", epochs=1, out=tmp_path / "run", callback=callback, progress=False)
    assert list((tmp_path / "run" / "checkpoint").iterdir())
    assert gk.resume(tmp_path / "run", progress=False).finished


@pytest.mark.skipif(os.name != "posix", reason="signals are sent as on Unix")
def test_an_interrupt_leaves_a_checkpoint_and_raises(waves, tmp_path):
    """In a process of its own, as Ctrl-C arrives; it waits for the interrupt after its third step."""
    gk.Dataset(*waves, periodic="x").save(tmp_path / "waves")
    program = textwrap.dedent(
        """
        import galerkin as gk
        def callback(event):
            if event.get("step") == 3 and event["event"] == "step":
                print("third", flush=True)
        try:
            gk.train("waves", network="fno", epochs=2000, out="run", callback=callback, progress=False)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "third\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "interrupted\n" and process.returncode == 0
    assert list((tmp_path / "run" / "checkpoint").iterdir())
    with pytest.raises(FileExistsError, match=r"galerkin.resume\('"):
        gk.train(gk.Dataset.open(tmp_path / "waves"), out=tmp_path / "run")


def test_a_diverged_training_says_so(waves, tmp_path):
    words = {"optimizer.kind": "adam", "schedule.kind": "constant", "train.lr": 1e9, "optimizer.max_norm": 1e9}
    with pytest.raises(gk.Diverged):
        gk.train(gk.Dataset(*waves), network="transformer", epochs=3, out=tmp_path / "run", settings=words, progress=False)


def test_wrong_settings_leave_nothing_behind(waves, tmp_path):
    data = gk.Dataset(*waves)
    for words, message in [
        (dict(network="nope"), "expected transformer, fno, multilevel or a preset"),
        (dict(settings={"train.epochz": 3}), "settings: unknown field `epochz`"),
        (dict(epochs=0), "epochs"),
        (dict(epochs=1, settings={"train.epochs": 2}), "train.epochs: said twice"),
        (dict(settings={"train.lr": object()}), "expected a number, a word"),
        (dict(settings={"network.periodic": [True, True]}), "network"),
    ]:
        with pytest.raises(ValueError, match=message):
            gk.train(data, out=tmp_path / "run", progress=False, **words)
        assert not (tmp_path / "run").exists()
    flat = gk.Dataset(waves[0], np.full_like(waves[1], np.nan))
    with pytest.raises(ValueError, match="targets"):
        gk.train(flat, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    points = gk.Dataset(*waves, points=np.zeros((32, 1)))
    with pytest.raises(ValueError, match="points"):
        gk.train(points, out=tmp_path / "run", progress=False)


def test_runs_that_are_not_there(tmp_path):
    with pytest.raises((FileNotFoundError, ValueError), match="nothing"):
        gk.Run(tmp_path / "nothing")
    with pytest.raises((FileNotFoundError, ValueError), match="nothing"):
        gk.resume(tmp_path / "nothing")
