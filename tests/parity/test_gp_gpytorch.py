"""The same process by GPyTorch, where it is installed: predictions, likelihood and its gradient agree to 1e-8."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shoestring.models.gp.fit import make_log_likelihood
from shoestring.models.gp.kernels import Family, Kernel
from shoestring.models.gp.posterior import condition

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # ignore warnings of other libraries during their import
    torch = pytest.importorskip("torch")
    gpytorch = pytest.importorskip("gpytorch")

Array = NDArray[np.float64]
THETA = np.array([0.3, -0.6, 0.2, 1.0, math.log(0.02)])  # log signal variance, log length-scales, log noise variance
N = 40


def data(seed: int, n: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.random((n, 3))
    return x, 40.0 + 7.0 * np.sin(5 * x[:, 0]) + 3.0 * x[:, 1] ** 2 + 0.3 * rng.standard_normal(n)


def make_gpytorch_model(family: Family, x: Array, y: Array) -> tuple[Any, Any]:
    """Return an exact GP of GPyTorch with zero mean with our parameters, in double precision."""
    core = gpytorch.kernels.RBFKernel if family == "se" else gpytorch.kernels.MaternKernel
    smoothness = {"se": {}, "matern32": {"nu": 1.5}, "matern52": {"nu": 2.5}}[family]

    class Exact(gpytorch.models.ExactGP):  # type: ignore[misc, name-defined]
        def __init__(self, likelihood: Any) -> None:
            super().__init__(torch.from_numpy(x), torch.from_numpy(y), likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(core(ard_num_dims=x.shape[1], **smoothness))

        def forward(self, at: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(at), self.covar_module(at))

    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-9))
    model = Exact(likelihood).double()
    model.covar_module.outputscale, likelihood.noise = torch.from_numpy(
        np.exp(THETA[[0, -1]])
    )  # a float would be single
    model.covar_module.base_kernel.lengthscale = torch.from_numpy(np.exp(THETA[1:-1]))
    return model, likelihood


def by_log(raw: Any, constraint: Any) -> Array:
    """Return the gradient with respect to the log of a parameter, from that with respect to GPyTorch's raw one."""
    with torch.no_grad():
        value = constraint.transform(raw)
        slope = torch.sigmoid(raw)  # of softplus, GPyTorch's transform
        return np.asarray((raw.grad * value / slope).numpy()).ravel()


@pytest.mark.parametrize("family", ["se", "matern32", "matern52"])
@pytest.mark.filterwarnings("ignore")
def test_agrees_with_gpytorch(family: Family) -> None:
    x, y = data(0, N)
    x_new, _ = data(1, 30)
    gp = condition(Kernel.ard(family, 3), THETA, x, y)
    standard = (y - gp.shift) / gp.scale
    model, likelihood = make_gpytorch_model(family, x, standard - gp.constant)  # theirs has no mean
    with gpytorch.settings.fast_computations(False, False, False):  # by Cholesky, as ours
        loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        model.train()
        value = loss(model(*model.train_inputs), model.train_targets) * N  # theirs is the mean over observations
        value.backward()
        model.eval()
        likelihood.eval()
        with torch.no_grad():
            latent = model(torch.from_numpy(x_new))
            noisy = likelihood(latent)
    want_mean, want_cov = latent.mean.numpy(), latent.covariance_matrix.numpy()
    mean, covariance = gp.predict_joint(x_new)
    np.testing.assert_allclose((mean - gp.shift) / gp.scale - gp.constant, want_mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(covariance / gp.scale**2, want_cov, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(
        gp.predict(x_new, noisy=True)[1] / gp.scale**2, noisy.variance.numpy(), rtol=1e-8, atol=1e-8
    )
    ours, gradient = make_log_likelihood(gp.kernel, gp.kernel.pairs(x), standard)(THETA)
    kernel, noise = model.covar_module, likelihood.noise_covar
    want = [
        by_log(kernel.raw_outputscale, kernel.raw_outputscale_constraint),
        by_log(kernel.base_kernel.raw_lengthscale, kernel.base_kernel.raw_lengthscale_constraint),
        by_log(noise.raw_noise, noise.raw_noise_constraint),
    ]
    mean_prior = -0.5 * (gp.constant**2 + math.log(2 * math.pi))
    np.testing.assert_allclose(ours, value.item() + mean_prior, rtol=1e-8)
    np.testing.assert_allclose(gradient, np.concatenate(want), rtol=1e-8, atol=1e-8)
