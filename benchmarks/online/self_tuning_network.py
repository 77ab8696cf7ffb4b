"""A small VGG that learns how its weights should respond to its own hyperparameters, and tunes them by gradient steps.

MacKay, Vicol, Lorraine, Duvenaud, Grosse, "Self-Tuning Networks: Bilevel Optimization of Hyperparameters using Structured
Best-Response Functions", ICLR 2019, arXiv:1903.03088, Sections 3.2 and 3.3.

    paper     here            meaning                                                              shape
    lambda    hyper           hyperparameters before the sigmoid that gives them their range       (8,)
    sigma     spread          scale of the noise on them, one sample of it for each image          (8,)
    phi       parameters      weights of the best response                                         —
    tau       ENTROPY_WEIGHT  weight of the entropy, which keeps the spread above zero             —

Every layer has two sets of weights, W and W', and computes (W + diag(V (lambda - lambda_0)) W') x: its response to lambda is
linear, one number per output channel (lambda_0, the initial value, only keeps the numbers small: W can absorb it). A *training
step* perturbs lambda, augments and drops out with the perturbed values, and reduces the training loss by phi. A *tuning step*
uses clean validation images without dropout: lambda acts on their loss only through the layers' responses, and the gradient
changes lambda and sigma.

A convolution has two options (`Ways`): the paper's biases respond, too, b + V' (lambda - lambda_0), which "scale" leaves out; and
batch normalisation is after the response, where it cancels much of it, or before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.online.fashion import N_CLASSES, Fashion, normalise

# (name, largest value); dropout after each of the three blocks and before the last layer, then the input's distortions
HYPER = (
    ("dropout_1", 0.8),
    ("dropout_2", 0.8),
    ("dropout_3", 0.8),
    ("dropout_out", 0.8),
    ("noise", 0.5),  # standard deviation added to pixels in [0, 1]
    ("brightness", 1.0),  # factor 1 ± this
    ("contrast", 1.0),  # the same about the image's mean
    ("cutout", 1.0),  # probability that a black square hides up to half of the side
)
N_DROPOUTS = 4
START, SPREAD, ENTROPY_WEIGHT = 0.05, 0.5, 1e-3  # START: share of the largest value


@dataclass(frozen=True)
class Ways:
    """How layers respond, and the initial hyperparameters: shares of their largest values, and the noise on them."""

    answer: Literal["scale", "scale+shift"] = "scale"
    norm: Literal["behind", "before"] = "behind"
    dropout: float = START
    distortion: float = START
    spread: float = SPREAD


class HyperConv(nn.Module):
    """A 3x3 convolution with normalisation that responds to the hyperparameters of each image."""

    def __init__(self, n_in: int, n_out: int, ways: Ways) -> None:
        super().__init__()
        self.both = nn.Conv2d(n_in, 2 * n_out, 3, padding=1, bias=False)  # W and W' in one
        self.answer = nn.Linear(len(HYPER), n_out, bias=False)  # V
        self.shift = nn.Linear(len(HYPER), n_out, bias=False) if ways.answer == "scale+shift" else None  # V'
        self.is_before = ways.norm == "before"
        self.norm = nn.BatchNorm2d(2 * n_out if self.is_before else n_out)

    def forward(self, x: Tensor, hyper: Tensor) -> Tensor:
        both = self.both(x)
        plain, answering = (self.norm(both) if self.is_before else both).chunk(2, dim=1)
        x = plain + self.answer(hyper)[:, :, None, None] * answering
        if self.shift is not None:
            x = x + self.shift(hyper)[:, :, None, None]
        return functional.relu(x if self.is_before else self.norm(x))


class HyperLinear(nn.Module):
    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.both, self.answer = nn.Linear(n_in, 2 * n_out), nn.Linear(len(HYPER), n_out, bias=False)

    def forward(self, x: Tensor, hyper: Tensor) -> Tensor:
        plain, answering = self.both(x).chunk(2, dim=1)
        return plain + self.answer(hyper) * answering


class SelfTuningVGG(nn.Module):
    """Three blocks of two convolutions, each halving the image; then one linear layer."""

    def __init__(self, width: int, ways: Ways) -> None:
        super().__init__()
        sizes = [1, width, 2 * width, 4 * width]
        self.blocks = nn.ModuleList(
            nn.ModuleList([HyperConv(n_in, n_out, ways), HyperConv(n_out, n_out, ways)])
            for n_in, n_out in pairwise(sizes)
        )
        self.last = HyperLinear(sizes[-1], N_CLASSES)
        share = torch.tensor([ways.dropout if i < N_DROPOUTS else ways.distortion for i in range(len(HYPER))])
        self.hyper = nn.Parameter(torch.logit(share))
        self.log_spread = nn.Parameter(torch.full((len(HYPER),), ways.spread).log())
        self.register_buffer("start", torch.logit(share))
        self.register_buffer("greatest", torch.tensor([most for _, most in HYPER]))

    def forward(self, x: Tensor, hyper: Tensor, values: Tensor | None = None) -> Tensor:
        """Return logits. The layers respond to `hyper` (n, 8); `values` (n, 8), if given, has the dropout rates."""
        x, hyper = normalise(x).contiguous(memory_format=torch.channels_last), hyper - self.start
        for i, (first, second) in enumerate(self.blocks):
            x = functional.max_pool2d(second(first(x, hyper), hyper), 2)
            if values is not None:
                x = _drop_out(x, values[:, i, None, None, None])
        x = x.mean(dim=(2, 3))
        if values is not None:
            x = _drop_out(x, values[:, 3, None])
        return self.last(x, hyper).float()

    def perturb(self, n: int) -> Tensor:
        """Return one sample of the hyperparameters for each of n images."""
        noise = torch.randn(n, len(HYPER), device=self.hyper.device)
        return self.hyper + self.log_spread.exp() * noise

    def values(self, hyper: Tensor) -> Tensor:
        return torch.sigmoid(hyper) * self.greatest

    def parts(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Return the parameters that training steps change, and those that tuning steps change."""
        tuned = [self.hyper, self.log_spread]
        return [p for p in self.parameters() if all(p is not t for t in tuned)], tuned


def training_loss(model: SelfTuningVGG, x: Tensor, y: Tensor) -> Tensor:
    hyper = model.perturb(len(x)).detach()
    values = model.values(hyper)
    return functional.cross_entropy(model(_distort(x, values), hyper, values), y)


def tuning_loss(model: SelfTuningVGG, x: Tensor, y: Tensor) -> Tensor:
    """Return the validation loss with perturbed hyperparameters, less the entropy of the perturbation."""
    loss = functional.cross_entropy(model(x, model.perturb(len(x))), y)
    return loss - ENTROPY_WEIGHT * model.log_spread.sum()


@torch.no_grad()
def evaluate(model: SelfTuningVGG, x: Tensor, y: Tensor, autocast: torch.autocast) -> tuple[float, float]:
    """Return loss and accuracy on clean images with the present hyperparameters."""
    model.eval()
    with autocast:
        logits = torch.cat([model(part, model.hyper.expand(len(part), -1)) for part in x.split(5000)])
    model.train()
    return float(functional.cross_entropy(logits, y)), float((logits.argmax(dim=1) == y).double().mean())


def start_model(data: Fashion, width: int, seed: int, ways: Ways) -> SelfTuningVGG:
    torch.manual_seed(seed)
    return SelfTuningVGG(width, ways).to(data.device, memory_format=torch.channels_last)


def _drop_out(x: Tensor, rate: Tensor) -> Tensor:
    mask = torch.rand(x.shape, device=x.device) >= rate
    return x * mask / (1.0 - rate).to(x.dtype)


def _distort(x: Tensor, values: Tensor) -> Tensor:
    """Return images (n, 1, s, s) with the noise, brightness, contrast and cutout of each image's values."""
    n, size = len(x), x.shape[-1]
    noise, brightness, contrast, cutout = (values[:, i, None, None, None] for i in range(4, 8))
    u = torch.rand(n, 6, 1, 1, 1, device=x.device)
    x = x * (1.0 + brightness * (2 * u[:, 0] - 1))
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    x = mean + (x - mean) * (1.0 + contrast * (2 * u[:, 1] - 1)) + noise * torch.randn_like(x)
    half, at = 0.25 * size * u[:, 2], torch.arange(size, device=x.device) + 0.5
    across = (at[None, None, None, :] - size * u[:, 3]).abs() <= half
    down = (at[None, None, :, None] - size * u[:, 4]).abs() <= half
    return torch.where(across & down & (u[:, 5] < cutout), 0.0, x)
