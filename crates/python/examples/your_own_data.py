# %% [markdown]
# # Your own data
#
# Two arrays are enough: inputs and targets, samples first. Here they are the heat that is left on a cylinder after a
# while, round in one direction and closed in the other, with a channel for the temperature and one for the material.

# %%
import numpy as np

import galerkin as gk

random = np.random.default_rng(0)
samples, nx, ny = 120, 24, 17


def smooth(values):
    """Only the lowest waves of both directions."""
    spectrum = np.fft.rfft2(values)
    spectrum[..., 4:-3, :] = 0
    spectrum[..., 4:] = 0
    return np.fft.irfft2(spectrum, s=values.shape[-2:])


temperature = smooth(random.standard_normal((samples, nx, ny)))
material = 1 + 0.5 * np.tanh(5 * smooth(random.standard_normal((samples, nx, ny))))


def diffuse(u, a, steps=40, rate=0.1):
    """Explicit steps of u_t = a Δu; nothing leaves at the closed ends."""
    for _ in range(steps):
        ends = np.concatenate([u[..., :1], u, u[..., -1:]], axis=-1)
        around = np.roll(u, 1, axis=-2) + np.roll(u, -1, axis=-2) + ends[..., 2:] + ends[..., :-2] - 4 * u
        u = u + rate * a * around
    return u


# %% [markdown]
# `axes` names the axes of the grid; what comes behind them are channels. Axes are closed, from 0 to 1, unless something
# else is said.

# %%
data = gk.Dataset(
    np.stack([temperature, material], axis=-1),
    diffuse(temperature, material),
    axes=("x", "y"),
    periodic=("x",),
    lengths={"x": 2 * np.pi},
    input_channels=("temperature", "material"),
    target_channels=("temperature after a while",),
)
data

# %%
data.plot(samples=1);

# %% [markdown]
# What can be read in two ways is refused with both readings.

# %%
try:
    gk.Dataset(temperature, temperature)
except ValueError as error:
    print(error)

# %% [markdown]
# A Fourier neural operator for a change, with flips of the data as augmentation. Any setting of the command's config can
# be named. A dataset without a folder is saved in that of the run.

# %%
run = gk.train(data, network="fno", epochs=15, out="runs/heat", settings={"train.augment": ["shift x", "flip y"]})
(evaluation,) = run.evaluate()
print(f"{evaluation.samples} samples, mean error {evaluation.relative_l2:.1%}")

# %% [markdown]
# The trivial predictor, which answers the input, has this error:

# %%
test = slice(-evaluation.samples, None)
difference = data.inputs[test, ..., :1] - data.targets[test]
norms = [np.linalg.norm(field.reshape(len(field), -1), axis=1) for field in (difference, data.targets[test])]
trivial = float(np.mean(norms[0] / norms[1]))
print(f"{trivial:.1%}")
assert evaluation.relative_l2 < trivial / 2
