"""Networks of `galerkin.torch` and runs of the library."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="galerkin.torch is for those who have PyTorch")

import galerkin as gk  # noqa: E402
import galerkin.torch as gt  # noqa: E402

EPS = torch.finfo(torch.float32).eps


def predicted(module, x):
    with torch.no_grad():
        return module(torch.from_numpy(x)).numpy()


def modules():
    torch.manual_seed(0)
    return {
        "line": (gt.Transformer1d(width=16, layers=2, channels=8, modes=5, heads=2, gain=1.0), (3, 40, 1)),
        "square": (
            gt.Transformer2d(fine=21, coarse=8, width=12, layers=2, heads=2, channels=6, modes=3),
            (2, 21, 21, 1),
        ),
        "fno": (gt.Fno(channels=8, modes=5), (3, 32, 1)),
        "fno on a square": (gt.Fno(periodic=[False] * 2, channels=6, modes=3, padding=0.1), (3, 16, 16, 1)),
    }


@pytest.mark.parametrize("name", modules())
def test_there_and_back(name, tmp_path):
    module, shape = modules()[name]
    module.eval().to_run(tmp_path / "run")
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    y = predicted(module, x)
    # The library predicts by the same kernels.
    assert np.array_equal(gk.load(tmp_path / "run")(x), y)
    back = gt.from_run(tmp_path / "run")
    assert type(back) is type(module) and not back.training and back.network == module.network
    assert np.array_equal(predicted(back, x), y)
    assert np.array_equal(predicted(type(module).from_run(tmp_path / "run", best=True), x), y)
    weights = next((tmp_path / "run").glob("*.safetensors"))
    assert np.array_equal(predicted(gt.from_run(weights), x), y)
    with pytest.raises(ValueError, match="a run is here already"):
        module.to_run(tmp_path / "run")


def test_a_trained_run_becomes_a_module(trained, waves, tmp_path):
    module = gt.from_run(trained.path)
    x = waves[0][..., None].astype(np.float32)
    expected = trained.model(x)
    found = predicted(module, x)
    # Normalisers are applied in another order of roundings.
    assert np.abs(found - expected).max() <= 32 * EPS * np.abs(expected).max()
    # It goes on learning here.
    loss = (
        (module.train()(torch.from_numpy(x)) - torch.from_numpy(waves[1][..., None].astype(np.float32)))
        .pow(2)
        .mean()
    )
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


@pytest.mark.parametrize("statistics", ["channel", "point"])
def test_normalisers_come_along(statistics, waves, tmp_path):
    settings = {
        "network.spectral.modes": 6,
        "data.normalize_inputs": statistics,
        "data.normalize_targets": statistics,
    }
    data = gk.Dataset(3 * waves[0] + 1, 10 * waves[1] - 5, axes=("x",), periodic=("x",))
    run = gk.train(data, network="fno", epochs=1, out=tmp_path / "run", settings=settings, progress=False)
    module = gt.from_run(run.path)
    assert module.input_normalizer is not None and module.normalizer is not None
    x = (3 * waves[0] + 1)[:5, :, None].astype(np.float32)
    expected = gk.load(run.path)(x)
    for fused in (True, False):
        module.fused = fused
        assert np.abs(predicted(module, x) - expected).max() <= 32 * EPS * np.abs(expected).max()
    assert {"normalizer.mean", "input_normalizer.std"} <= module.state_dict().keys()
    other = type(module).from_run(run.path)
    other.load_state_dict(module.state_dict())
    # And back, with weights that are not those of the run.
    with torch.no_grad():
        next(iter(module.parameters())).mul_(1.5)
    module.fused = True
    module.to_run(tmp_path / "other")
    again, expected = gt.from_run(tmp_path / "other"), predicted(module, x)
    assert np.array_equal(predicted(again, x), expected)
    assert np.abs(gk.load(tmp_path / "other")(x) - expected).max() <= 32 * EPS * np.abs(expected).max()
    assert gk.Run(tmp_path / "other").config["data"]["normalize_inputs"] == statistics
    if statistics == "point":
        with pytest.raises(ValueError, match=r"normaliser by point: expected"):
            module(torch.zeros(1, 16, 1))


def test_errors(trained, tmp_path):
    with pytest.raises(FileNotFoundError, match="found nothing"):
        gt.from_run(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="expected a transformer on a line, found fno on 1 axes"):
        gt.Transformer1d.from_run(trained.path)
    config = gt.Fno(channels=4, modes=3).network
    for change in ({"native": [32]}, {"output": {"resized": {"from": [8], "to": [16]}}}):
        with pytest.raises(ValueError, match="expected one that computes on the grid of its input"):
            gt.Fno.from_config({**config, **change})
    with pytest.raises(ValueError, match="expected a transformer on a square, found transformer on 1 axes"):
        gt.Transformer2d.from_config(gt.Transformer1d().network)


@pytest.mark.parametrize("name", ["burgers", "darcy", "darcy-inverse", "fno-burgers", "fno-darcy"])
def test_presets_are_networks_here(name, tmp_path):
    """The network of every preset goes from here to a run and back. Its weights, by name and shape, are the
    library's.
    """
    from galerkin import _galerkin

    (tmp_path / "config.toml").write_text(_galerkin.preset(name, None, []))
    config = json.loads(_galerkin.run_config(tmp_path)[1])["network"]
    module = gt._class_of(config).from_config(config)
    assert {name: tuple(p.shape) for name, p in module.named_parameters()} == dict(zip(*module._signature))
    assert module.network.items() >= config.items()
    module.to_run(tmp_path / "run")
    assert gt.from_run(tmp_path / "run").network == module.network
