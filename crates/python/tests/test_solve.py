"""Classical solvers: known answers, and shapes."""

import numpy as np
import pytest

import galerkin as gk


def test_burgers_has_the_travelling_wave():
    """u = c + 4πν sin(2π(x − ct)) e / (a + e cos(2π(x − ct))) with e = exp(−4π²νt): Cole and Hopf's form of one mode."""
    viscosity, time, a, c = 0.05, 0.3, 2.0, 0.7

    def exact(x, t):
        decay, phase = np.exp(-4 * np.pi**2 * viscosity * t), 2 * np.pi * (x - c * t)
        return c + 4 * np.pi * viscosity * decay * np.sin(phase) / (a + decay * np.cos(phase))

    x = np.arange(128) / 128
    found = gk.solve.burgers(exact(x, 0), viscosity=viscosity, time=time)
    # The solver is told to stay below 1e-8, relative.
    assert np.abs(found - exact(x, time)).max() < 1e-7
    fine = gk.solve.burgers(np.stack([exact(x, 0), 0 * x]), viscosity=viscosity, time=time, points=256)
    assert fine.shape == (2, 256) and np.abs(fine[0] - exact(np.arange(256) / 256, time)).max() < 1e-7


def test_darcy_is_of_second_order():
    """u = sin(πx) sin(πy) with a = 1 + x, whose right-hand side is known."""
    errors = []
    for n in (17, 33):
        y, x = np.meshgrid(*[np.linspace(0, 1, n)] * 2, indexing="ij")
        u = np.sin(np.pi * x) * np.sin(np.pi * y)
        f = 2 * np.pi**2 * (1 + x) * u - np.pi * np.cos(np.pi * x) * np.sin(np.pi * y)
        errors.append(np.abs(gk.solve.darcy(1 + x, f) - u).max())
    assert 3.6 < errors[0] / errors[1] < 4.4


def test_wrong_shapes_are_value_errors():
    with pytest.raises(ValueError, match=r"u0: expected shape \(n,\) or \(samples, n\), found \(1, 2, 3\)"):
        gk.solve.burgers(np.zeros((1, 2, 3)))
    with pytest.raises(ValueError, match=r"a: expected shape \(n, n\)"):
        gk.solve.darcy(np.ones(4))
    with pytest.raises(ValueError, match=r"expected shape \(samples, n, n\)"):
        gk.solve.darcy(np.ones((4, 5)))
    with pytest.raises(ValueError, match=r"f: expected a number or shape \(5, 5\)"):
        gk.solve.darcy(np.ones((5, 5)), np.ones(5))
    with pytest.raises(ValueError, match="coefficient"):
        gk.solve.darcy(-np.ones((5, 5)))
