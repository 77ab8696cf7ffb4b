"""Eight augmentations of small grey images, each applied with a probability that is tuned.

Crop, both flips and rotation move pixels: they are multiplied into one affine map per image and sampled once. Tone,
blur, cutout and inversion change values. `probabilities` (8,), in the order of NAMES, are those of applying each of them to
an image; with all at 0 the image is unchanged.

    crop             a window of 20 to 100 % of the area, sides 3:4 to 4:3, stretched to the whole image
    flip_horizontal  left and right exchanged
    flip_vertical    top and bottom exchanged
    rotation         by up to 90 degrees to either side
    tone             brightness and contrast, each by a factor of 0.4 to 1.6
    blur             a Gaussian of 1.5 pixels, mixed in by a random share
    cutout           a black square of a quarter to half of the side
    inversion        white for black, in place of the grey scale of colour images
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

NAMES = ("crop", "flip_horizontal", "flip_vertical", "rotation", "tone", "blur", "cutout", "inversion")


def augment(x: Tensor, probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random view of each image of x (n, 1, s, s), with values in [0, 1]."""
    n = x.shape[0]
    drawn = torch.rand(n, len(NAMES), generator=generator, device=x.device) < probabilities
    u = torch.rand(n, 12, generator=generator, device=x.device)
    x = functional.grid_sample(
        x,
        functional.affine_grid(_affine(drawn, u[:, :5]), list(x.shape), align_corners=False),
        padding_mode="zeros",
        align_corners=False,
    )
    tone, blur, cutout, inversion = (drawn[:, i, None, None, None] for i in range(4, 8))
    v = u[:, 5:, None, None, None]
    x = torch.where(tone, _change_tone(x, v[:, 0], v[:, 1]), x)
    x = torch.where(blur, x + v[:, 2] * (_blur(x) - x), x)
    x = torch.where(cutout & _square(x.shape[-1], u[:, 8:11]), 0.0, x)
    return torch.where(inversion, 1.0 - x, x)


def _affine(drawn: Tensor, u: Tensor) -> Tensor:
    """Return maps (n, 2, 3) from places in the view to places in the image, both in [-1, 1]."""
    one = torch.ones_like(u[:, 0])
    crop = drawn[:, 0]
    area = torch.where(crop, 0.2 + 0.8 * u[:, 0], one)
    ratio = torch.where(crop, torch.exp((2 * u[:, 1] - 1) * math.log(4 / 3)), one)
    width, height = (area * ratio).sqrt().clamp(max=1.0), (area / ratio).sqrt().clamp(max=1.0)
    right, down = (2 * u[:, 2] - 1) * (1 - width), (2 * u[:, 3] - 1) * (1 - height)
    angle = torch.where(drawn[:, 3], (2 * u[:, 4] - 1) * (math.pi / 2), 0.0)
    cos, sin = torch.cos(angle), torch.sin(angle)
    flip_x, flip_y = one - 2 * drawn[:, 1].float(), one - 2 * drawn[:, 2].float()
    # the place of the window, then its rotation about the centre of the image
    a, b = width * flip_x, height * flip_y
    rows = [cos * a, -sin * b, cos * right - sin * down, sin * a, cos * b, sin * right + cos * down]
    return torch.stack(rows, dim=1).view(-1, 2, 3)


def _change_tone(x: Tensor, brightness: Tensor, contrast: Tensor) -> Tensor:
    x = x * (0.4 + 1.2 * brightness)
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    return (mean + (x - mean) * (0.4 + 1.2 * contrast)).clamp(0.0, 1.0)


def _blur(x: Tensor) -> Tensor:
    std = 1.5 * x.shape[-1] / 28
    at = torch.arange(-3, 4, device=x.device, dtype=x.dtype)
    line = torch.exp(-0.5 * (at / std) ** 2)
    line = line / line.sum()
    x = functional.conv2d(x, line.view(1, 1, 1, 7), padding=(0, 3))
    return functional.conv2d(x, line.view(1, 1, 7, 1), padding=(3, 0))


def _square(size: int, u: Tensor) -> Tensor:
    """Return a mask of the black square of each image, (n, 1, size, size)."""
    half = (0.125 + 0.125 * u[:, 0, None]) * size
    at = torch.arange(size, device=u.device) + 0.5
    across, down = ((at - size * u[:, i, None]).abs() <= half for i in (1, 2))
    return (down[:, :, None] & across[:, None, :])[:, None]
