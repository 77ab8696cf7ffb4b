"""Write trained networks to the file that the package reads, and to a file of results that its inference is tested with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from shoestring.models.thrift.network import checksum
from training.network import Network, Studies, features, scale_of
from training.sources import trained_on
from training.studies import batch


def load(path: Path) -> tuple[Network, dict[str, Any]]:
    """Return the network that `train` wrote, and the facts about its training."""
    stored = torch.load(path, map_location="cpu", weights_only=True)
    facts = json.loads(stored["facts"])
    network = Network(facts["width"], facts["layers"], facts["heads"])
    network.load_state_dict(stored["weights"])
    return network.eval(), facts


def facts_of(path: Path) -> dict[str, Any]:
    """Return what an exported file states about its networks."""
    with np.load(path, allow_pickle=False) as stored:
        facts: dict[str, Any] = json.loads(str(stored["facts"]))
    return facts


def restore(path: Path) -> list[Network]:
    """Return the networks of an exported file, as they were before `export`, up to half precision."""
    facts, networks = facts_of(path), []
    with np.load(path, allow_pickle=False) as stored:
        rows = stored["weights"].astype(np.float32)
    for row in rows:
        network, place = Network(facts["width"], facts["layers"], facts["heads"]), 0
        for module in _in_order(network):
            for parameter in (module.weight, module.bias):
                part = torch.tensor(row[place : place + parameter.numel()])
                is_matrix = isinstance(module, nn.Linear) and parameter.dim() == 2
                part = part.view(parameter.shape[::-1]).T if is_matrix else part.view(parameter.shape)
                parameter.data.copy_(part)
                place += parameter.numel()
        networks.append(network.eval())
    return networks


def _in_order(network: Network) -> list[nn.Module]:
    """Return the parts in the order of `shoestring.models.thrift.network.unpack`."""
    blocks = (
        (block.norm_1, block.q, block.kv, block.o, block.norm_2, block.up, block.down) for block in network.blocks
    )
    return [network.enter, *(module for block in blocks for module in block), network.norm, network.bins]


def flatten(network: Network) -> np.ndarray[Any, np.dtype[np.float16]]:
    """Return all numbers in one row, in the order of `shoestring.models.thrift.network.unpack`."""
    parts: list[torch.Tensor] = []
    for module in _in_order(network):
        weight = module.weight.T if isinstance(module, nn.Linear) else module.weight
        parts.extend((weight, module.bias))
    return torch.cat([part.detach().reshape(-1) for part in parts]).numpy().astype(np.float16)


def export(trained: Sequence[Path], out: Path) -> dict[str, Any]:
    """Write one file for networks of one shape, trained on one fold with several seeds; return its header."""
    networks, facts = zip(*(load(path) for path in trained), strict=True)
    flat = np.stack([flatten(network) for network in networks])
    first = facts[0]
    header = {
        "width": first["width"],
        "layers": first["layers"],
        "heads": first["heads"],
        "fold": first["fold"],
        "trained_on": list(trained_on(first["fold"])) if first["synthetic"] < 1 else [],
        "trainings": list(facts),
        "sha256": checksum(flat),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, weights=flat, facts=json.dumps(header))
    return header


def write_golden(trained: Path, out: Path, studies: int = 4, arms: int = 24, seed: int = 0) -> None:
    """Write half-finished synthetic studies and the predictions of PyTorch, with weights rounded as they are shipped."""
    torch.manual_seed(seed)
    network, _ = load(trained)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(parameter.half().float())
        s: Studies = batch(None, studies, arms, 1.0, torch.device("cpu"))
        f = features(s, scale_of(s))
        chances = torch.softmax(network(f, (s.n > 0) & s.valid), -1)
    out.parent.mkdir(parents=True, exist_ok=True)
    given = {name: value.numpy() for name, value in s._asdict().items()}
    flat = flatten(network)[None]
    shape = dict(zip(("width", "layers", "heads"), network.shape, strict=True))
    facts = json.dumps({**shape, "sha256": checksum(flat)})
    np.savez_compressed(out, **given, features=f.numpy(), chances=chances.numpy(), weights=flat, facts=facts)
