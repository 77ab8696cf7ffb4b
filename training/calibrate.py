"""Are forecasts borne out? Coverage of intervals and the order of arms, on sources that the weights have not seen.

Half-finished studies as in training, but on curves as they are; for each source that is fair to judge the weights on. `last`
is the order by newest loss, which is what halving goes by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shoestring.models.thrift.shapes import BINS, HIGH, LOW
from training.export import load
from training.network import features, scale_of
from training.sources import judged_on
from training.studies import Tables, answer, batch

_BATCHES, _STUDIES, _ARMS = 6, 128, 128


def order_agreement(a: Tensor, b: Tensor, there: Tensor) -> Tensor:
    """(b,): rank correlation over the arms that are there; nan with fewer than 5."""
    far = torch.full_like(a, 1e30)
    ranks = [torch.where(there, v, far).argsort(1).argsort(1).float() for v in (a, b)]
    count = there.sum(1, keepdim=True).clamp(min=1)
    centred = [torch.where(there, r - (r * there).sum(1, keepdim=True) / count, torch.zeros_like(r)) for r in ranks]
    product = (centred[0] * centred[1]).sum(1)
    size = (centred[0].pow(2).sum(1) * centred[1].pow(2).sum(1)).sqrt()
    return torch.where(count[:, 0] >= 5, product / size.clamp(min=1e-9), torch.nan)


def calibrate(path: Path, packs: Sequence[Path], device: torch.device) -> Iterator[dict[str, Any]]:
    network, facts = load(path)
    network = network.to(device)
    torch.manual_seed(0)
    for source in judged_on(facts["fold"]):
        tables = Tables(packs, [source], device)
        if not len(tables.count):
            continue
        sums = torch.zeros(4, device=device, dtype=torch.float64)
        agreements: list[Tensor] = []
        for _ in range(_BATCHES):
            with torch.no_grad():
                s = batch(tables, _STUDIES, _ARMS, 0.0, device, varied=False)
                scale = scale_of(s)
                chances = torch.softmax(network(features(s, scale), (s.n > 0) & s.valid), -1)
            lowest, asked = answer(s)
            asked = asked & (s.n > 0)
            place = ((scale.squash(lowest) - LOW) / (HIGH - LOW) * BINS).long().clamp(0, BINS - 1)
            own = chances.gather(2, place[..., None])[..., 0]
            below = (chances.cumsum(-1).gather(2, place[..., None])[..., 0] - own * torch.rand_like(own))[asked]
            inside = [((below > (1 - share) / 2) & (below < (1 + share) / 2)).double().sum() for share in (0.5, 0.9)]
            sums += torch.stack([*inside, -torch.log(own[asked] + 1e-9).double().sum(), asked.double().sum()])
            middle = (chances * torch.arange(BINS, device=device)).sum(-1)
            newest = s.losses.gather(2, (s.n.clamp(min=1) - 1)[..., None])[..., 0]
            ours, last = order_agreement(middle, lowest, asked), order_agreement(newest, lowest, asked)
            agreements.append(torch.stack([ours, last], 1)[~torch.isnan(ours)])
        told = torch.cat(agreements).mean(0).tolist() if agreements else [float("nan")] * 2
        half, ninety, surprise = (float(x) for x in sums[:3] / sums[3])
        yield {
            "fold": facts["fold"],
            "seed": facts["seed"],
            "source": source,
            "inside_50": round(half, 3),
            "inside_90": round(ninety, 3),
            "log_loss": round(surprise, 3),
            "order": round(told[0], 3),
            "order_by_last": round(told[1], 3),
        }
