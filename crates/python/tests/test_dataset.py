"""Datasets: from arrays, generated, saved, opened, shown."""

import numpy as np
import pytest

import galerkin as gk


def test_arrays_with_and_without_channels(waves):
    u, v = waves
    plain = gk.Dataset(u, v, periodic="x")
    assert plain.inputs.shape == plain.targets.shape == (60, 32, 1)
    assert plain.domain == gk.Grid((gk.Axis("x", 32, periodic=True),))
    two = gk.Dataset(np.stack([u, v], -1), v, axes=("x",), input_channels=("u", "v"))
    assert two.inputs.shape == (60, 32, 2) and two.input_channels == ["u", "v"] and two.target_channels == ["target"]
    field, target = two[-1]
    assert np.array_equal(field[:, 1], v[-1].astype(np.float32)) and target.shape == (32, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_that_change_later_change_no_dataset(dtype):
    values = np.ones((4, 8), dtype)
    data = gk.Dataset(values, values)
    at_points = gk.Dataset(values, values, points=np.zeros((8, 2)))
    values[:] = 2
    assert all((one == 1).all() for one in (data.inputs, data.targets, at_points.inputs, at_points.targets))


def test_axes_lengths_and_grids_of_targets():
    inputs, targets = np.zeros((4, 8, 6)), np.zeros((4, 4, 3))
    data = gk.Dataset(inputs, targets, axes=("x", "y"), periodic=("y",), lengths={"x": 2.0}, origins={"x": -1.0})
    x, y = data.domain.axes
    assert (x.origin, x.length, x.periodic, y.periodic) == (-1.0, 2.0, False, True)
    assert np.allclose(x.coordinates[[0, -1]], [-1, 1]) and np.allclose(y.coordinates[-1], 5 / 6)
    assert data.domain.shape == (8, 6) and data.target_domain.shape == (4, 3)


def test_what_can_be_read_in_two_ways_is_refused_with_both():
    with pytest.raises(ValueError, match=r"\(samples, x, y\) or as \(samples, x, channels\); say axes=\('x', 'y'\) or axes=\('x',\)"):
        gk.Dataset(np.zeros((64, 33, 33)), np.zeros((64, 33, 33)))


@pytest.mark.parametrize(
    "words, message",
    [
        (dict(targets=np.zeros((3, 8))), "targets: expected 4 samples, as inputs have, found 3"),
        (dict(axes=("x", "y")), r"inputs: expected \(samples, x, y\) or \(samples, x, y, channels\), found shape \(4, 8\)"),
        (dict(periodic=("z",)), "periodic: expected names of axes, x, found 'z'"),
        (dict(lengths={"y": 1.0}), "lengths: expected names of axes, x, found 'y'"),
        (dict(input_channels=("a", "b")), "names of inputs: expected 1, found 2"),
        (dict(weights=np.ones(8)), "weights and cells: they belong to points"),
        (dict(points=np.zeros((7, 2))), r"inputs: expected \(samples, 7\) or \(samples, 7, channels\), found shape \(4, 8\)"),
        (dict(points=np.zeros((8, 4))), r"points: expected \(n, 1 to 3 coordinates\), found shape \(8, 4\)"),
        (dict(points=np.zeros((8, 2)), weights=np.ones(7)), "weights: expected one for every point"),
        (dict(points=np.zeros((8, 2)), periodic=("x",)), "periodic: a grid has them"),
        (dict(targets=np.zeros((4, 8), complex)), "targets: expected real numbers, found complex128"),
    ],
)
def test_what_does_not_fit_is_a_value_error(words, message):
    with pytest.raises(ValueError, match=message):
        gk.Dataset(**{"inputs": np.zeros((4, 8)), "targets": np.zeros((4, 8)), **words})


def test_saved_and_opened_it_is_the_same(waves, tmp_path):
    data = gk.Dataset(*waves, axes=("x",), periodic=("x",), lengths={"x": 2 * np.pi}, input_channels=("u",))
    assert data.path is None
    assert data.save(tmp_path / "waves") == tmp_path / "waves" == data.path
    again = gk.Dataset.open(tmp_path / "waves")
    assert (again.domain, again.input_channels, len(again)) == (data.domain, ["u"], 60)
    assert np.array_equal(again.inputs, waves[0].astype(np.float32)[..., None])
    assert np.array_equal(again[7][1], again.targets[7])
    with pytest.raises(FileExistsError):
        data.save(tmp_path / "waves")
    damaged = tmp_path / "waves" / "targets.npy"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with pytest.raises(ValueError, match="targets.npy"):
        gk.Dataset.open(tmp_path / "waves")


def test_points_shared_and_of_every_sample_alone(tmp_path):
    random = np.random.default_rng(2)
    points, cells = random.random((9, 2)), np.array([[0, 1, 2], [2, 3, 4]])
    shared = gk.Dataset(random.random((5, 9)), random.random((5, 9, 2)), points=points, weights=np.full(9, 1 / 9), cells=cells)
    shared.save(tmp_path / "shared")
    found = gk.Dataset.open(tmp_path / "shared")
    assert found.targets.shape == (5, 9, 2) and found.domain == shared.domain
    places = found.points(3)
    assert np.allclose(places["points"], points) and np.array_equal(places["cells"], cells)
    assert np.allclose(places["weights"], 1 / 9)

    counts = (4, 6, 3)
    inputs, targets = [[random.random((n, 1)) for n in counts] for _ in range(2)]
    own = gk.Dataset(inputs, targets, points=[random.random((n, 3)) for n in counts])
    own.save(tmp_path / "own")
    found = gk.Dataset.open(tmp_path / "own")
    assert [len(one) for one in found.inputs] == [4, 6, 3] and found.domain.count is None
    assert np.allclose(found[1][1], targets[1]) and found.points(2)["points"].shape == (3, 3)


def test_generated_samples_are_the_bytes_of_the_command(command, tmp_path):
    data = gk.generate("darcy", samples=3, grid=31, seed=5, out=tmp_path / "ours", progress=False)
    command("generate", "darcy", "--samples", 3, "--grid", 31, "--seed", 5, "--out", "theirs", cwd=tmp_path)
    for name in ("inputs.npy", "targets.npy", "meta.toml"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()
    assert data.problem["name"] == "darcy" and data.inputs.shape == (3, 31, 31, 1)
    # Once more it is there already; another one is not taken for it.
    gk.generate("darcy", samples=3, grid=31, seed=5, out=tmp_path / "ours", progress=False)
    with pytest.raises(FileExistsError):
        gk.generate("darcy", samples=3, grid=31, seed=6, out=tmp_path / "ours", progress=False)


def test_generated_samples_without_a_folder_can_be_kept(tmp_path):
    data = gk.generate("burgers", samples=3, grid=64, viscosity=0.05, progress=False)
    assert data.path is None and data.problem["viscosity"] == 0.05
    inputs = data.inputs.copy()
    data.save(tmp_path / "kept")
    kept = gk.Dataset.open(tmp_path / "kept")
    assert kept.problem == data.problem and np.array_equal(kept.inputs, inputs)


def test_wrong_problems_are_value_errors():
    with pytest.raises(ValueError, match="expected burgers or darcy"):
        gk.generate("navier", samples=1)
    with pytest.raises(ValueError, match="expected parameters of burgers"):
        gk.generate("burgers", samples=1, speed=2)
    with pytest.raises(ValueError, match="viscosity"):
        gk.generate("burgers", samples=1, grid=64, viscosity=-1.0)


def test_xarray_in_and_out():
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    y, x = np.linspace(-1, 1, 9), np.linspace(0, 3, 7)
    values = np.random.default_rng(3).random((4, 9, 7))
    array = xarray.DataArray(values, dims=("samples", "y", "x"), coords={"y": y, "x": x})
    data = gk.Dataset(array, array.transpose("x", "samples", "y") ** 2)
    assert [(axis.name, axis.origin, axis.length) for axis in data.domain.axes] == [("y", -1.0, 2.0), ("x", 0.0, 3.0)]
    # The dims of targets come in the order of the inputs.
    assert data.target_domain == data.domain and np.allclose(data.targets[..., 0], values**2)
    back = gk.Dataset(array, array**2).to_xarray()
    assert np.allclose(back["input"], values) and np.allclose(back["target"], values**2) and np.allclose(back["x"], x)
    with pytest.raises(ValueError, match="uniform"):
        gk.Dataset(array.assign_coords(x=x**2), array)


def test_it_is_shown(waves, tmp_path):
    data = gk.Dataset(*waves, axes=("x",), periodic=("x",))
    assert repr(data) == "Dataset of 60 samples: input → target on x: 32 points from 0 to 1, periodic"
    assert "<svg" in data._repr_html_()
    plane = gk.generate("darcy", samples=2, grid=21, progress=False)
    assert "data:image/png;base64," in plane._repr_html_()
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("agg")
    plane.plot(2).savefig(tmp_path / "plane.png")
    data.plot(1).savefig(tmp_path / "waves.png")
    assert (tmp_path / "plane.png").stat().st_size > 5000


def test_pictures_are_valid_files():
    """Read back by hand: size, and the colours of the least and the largest value."""
    import struct
    import zlib

    from galerkin._show import png

    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    data = png(pixels)
    width, height = struct.unpack(">II", data[16:24])
    length = struct.unpack(">I", data[33:37])[0]
    lines = np.frombuffer(zlib.decompress(data[41 : 41 + length]), np.uint8).reshape(2, 13)
    assert (width, height) == (4, 2) and np.array_equal(lines[:, 1:].reshape(2, 4, 3), pixels)
