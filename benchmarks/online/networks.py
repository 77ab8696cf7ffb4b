"""A small residual network for contrastive pre-training: projections, their loss, and linear read-outs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.online.fashion import N_CLASSES, normalise

TEMPERATURE = 0.5


class Block(nn.Module):
    """Two 3x3 convolutions that halve the image, and a shortcut."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(n_in, n_out, 3, stride=2, padding=1, bias=False)
        self.second = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.past = nn.Conv2d(n_in, n_out, 1, stride=2, bias=False)
        self.norm_first, self.norm_second, self.norm_past = (nn.BatchNorm2d(n_out) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm_second(self.second(functional.relu(self.norm_first(self.first(x)))))
        return functional.relu(inner + self.norm_past(self.past(x)))


class Encoder(nn.Module):
    """A network from images to features (n, 8 width), and in training to the projections (n, 64) that the loss compares."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(Block(width, 2 * width), Block(2 * width, 4 * width), Block(4 * width, 8 * width))
        self.head = nn.Sequential(nn.Linear(8 * width, 8 * width), nn.ReLU(), nn.Linear(8 * width, 64))

    def features(self, x: Tensor) -> Tensor:
        x = normalise(x).contiguous(memory_format=torch.channels_last)
        return self.blocks(functional.relu(self.norm(self.stem(x)))).mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def contrastive_loss(z: Tensor) -> Tensor:
    """Return NT-Xent of projections (2n, d): rows i and n + i are views of one image, all other pairs are of different images."""
    z = functional.normalize(z.float(), dim=1)
    n = z.shape[0] // 2
    similarity = z @ z.T / TEMPERATURE
    similarity.fill_diagonal_(-torch.inf)  # no view is compared with itself
    other_view = torch.arange(2 * n, device=z.device).roll(n)
    return functional.cross_entropy(similarity, other_view)


@torch.no_grad()
def features(encoder: Encoder, x: Tensor, autocast: torch.autocast) -> Tensor:
    """Return float32 features of images without augmentation, computed in parts."""
    encoder.eval()
    with autocast:
        found = torch.cat([encoder.features(part).float() for part in x.split(5000)])
    encoder.train()
    return found


@torch.no_grad()
def ridge_accuracy(train: Tensor, train_y: Tensor, held_out: Tensor, held_out_y: Tensor) -> float:
    """Return the accuracy of the quick read-out: least squares on standardised features, solved directly."""
    mean, std = train.mean(dim=0), train.std(dim=0) + 1e-6
    a, b = (torch.nn.functional.pad((x - mean) / std, (0, 1), value=1.0).double() for x in (train, held_out))
    targets = functional.one_hot(train_y, N_CLASSES).double()
    gram = a.T @ a + 1e-3 * len(a) * torch.eye(a.shape[1], dtype=a.dtype, device=a.device)
    weights = torch.linalg.solve(gram, a.T @ targets)
    return float(((b @ weights).argmax(dim=1) == held_out_y).double().mean())


def logistic_accuracy(train: Tensor, train_y: Tensor, held_out: Tensor, held_out_y: Tensor, steps: int) -> float:
    """Return the accuracy of the long read-out: softmax regression on standardised features by L-BFGS."""
    mean, std = train.mean(dim=0), train.std(dim=0) + 1e-6
    a, b = (train - mean) / std, (held_out - mean) / std
    layer = nn.Linear(a.shape[1], N_CLASSES).to(a.device)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=steps, history_size=20, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = functional.cross_entropy(layer(a), train_y) + 1e-5 * layer.weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    with torch.no_grad():
        return float((layer(b).argmax(dim=1) == held_out_y).double().mean())
