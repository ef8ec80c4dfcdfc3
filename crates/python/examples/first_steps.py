# %% [markdown]
# # First steps
#
# Samples of an equation, a network that learns to solve it, and how good it is. Takes some ten seconds.

# %%
import numpy as np

import galerkin as gk

# %% [markdown]
# Burgers' equation, solved 220 times for random initial values: sample i is the same on every machine.

# %%
data = gk.generate("burgers", samples=220, grid=128, seed=1)
data

# %%
data.plot(samples=2);

# %% [markdown]
# A Galerkin transformer is proposed for the data and trained on eight tenths of them. The folder `runs/burgers` has
# everything: config, weights, log, checkpoints.

# %%
run = gk.train(data, epochs=6, out="runs/burgers")
run

# %%
run.plot();

# %% [markdown]
# Errors on samples that it has not seen, on the grid of the training and on a coarser one, beside the classical solver.

# %%
for evaluation in run.evaluate(grid=[128, 64]):
    print(evaluation.points, f"network {evaluation.relative_l2:.2%}, solver {evaluation.solver:.3%}")

# %% [markdown]
# The model takes and gives numpy's arrays, on any grid that it has modes for.

# %%
model = run.model
x = np.arange(256) / 256
u0 = np.sin(2 * np.pi * x)
u1 = model(u0)
truth = gk.solve.burgers(u0)
print(f"relative error for a sine: {np.linalg.norm(u1 - truth) / np.linalg.norm(truth):.1%}")

# %% [markdown]
# What its layers hold, and what an encoder layer multiplies by: K̃ᵀṼ/n, a small matrix, whatever the grid.

# %%
for name, values in model.latents(u0).items():
    print(name, values.shape)
print(model.attention(u0, layer=1).shape)

# %% [markdown]
# A run that was interrupted goes on to the same bytes: `gk.resume("runs/burgers")`. The command sees the same folders:
# `galerkin evaluate runs/burgers`.
