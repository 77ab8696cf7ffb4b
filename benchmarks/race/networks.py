"""Two small NumPy networks with gradients written by hand, for scikit-learn's digits as images and as sequences of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.race.trained import log_loss, split

Weights = dict[str, Any]


def softmax(z: Any) -> Any:
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


class Network:
    """Gradient descent with momentum and weight decay; subclasses define the weights and both passes."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config, self._rng = config, np.random.default_rng(0)
        self._data = split("digits")
        self._weights = self.make_weights(self._rng)
        self._velocity = {name: np.zeros_like(w) for name, w in self._weights.items()}

    def change(self, config: dict[str, Any]) -> None:
        self._config = config

    def make_weights(self, rng: np.random.Generator) -> Weights:
        raise NotImplementedError

    def forward(self, x: Any) -> tuple[Any, Any]:
        """Return (n, classes) scores and the values that `back` needs."""
        raise NotImplementedError

    def back(self, grad: Any, cache: Any) -> Weights:
        """Return the gradients of the weights from the gradient of the scores."""
        raise NotImplementedError

    def gradients(self, x: Any, y: Any) -> Weights:
        scores, cache = self.forward(x)
        grad = softmax(scores)
        grad[np.arange(len(y)), y] -= 1.0
        return self.back(grad / len(y), cache)

    def step(self) -> None:
        """Train for one epoch."""
        config, data = self._config, self._data
        with np.errstate(all="ignore"):
            order = self._rng.permutation(len(data.train_y))
            for begin in range(0, len(order), config["batch_size"]):
                rows = order[begin : begin + config["batch_size"]]
                for name, grad in self.gradients(data.train_x[rows], data.train_y[rows]).items():
                    weight, velocity = self._weights[name], self._velocity[name]
                    velocity *= config["momentum"]
                    velocity -= config["lr"] * (grad + config["weight_decay"] * weight)
                    weight += velocity

    def validate(self) -> float:
        with np.errstate(all="ignore"):
            return log_loss(softmax(self.forward(self._data.valid_x)[0]), self._data.valid_y)


class Convolutional(Network):
    """3 x 3 filters, ReLU, average pooling over 2 x 2 cells, one dense layer."""

    def make_weights(self, rng: np.random.Generator) -> Weights:
        filters = self._config["filters"]
        return {
            "filters": rng.standard_normal((9, filters)) / 3.0,
            "bias": np.zeros(filters),
            "dense": rng.standard_normal((9 * filters, 10)) / np.sqrt(9 * filters),
            "shift": np.zeros(10),
        }

    def forward(self, x: Any) -> tuple[Any, Any]:
        w, n = self._weights, len(x)
        windows = np.lib.stride_tricks.sliding_window_view(x.reshape(n, 8, 8), (3, 3), axis=(1, 2))
        patches = windows.reshape(n, 6, 6, 9)
        linear = patches @ w["filters"] + w["bias"]  # (n, 6, 6, filters)
        active = np.maximum(linear, 0.0)
        cells = active.reshape(n, 3, 2, 3, 2, -1).mean(axis=(2, 4)).reshape(n, -1)
        return cells @ w["dense"] + w["shift"], (patches, linear, cells)

    def back(self, grad: Any, cache: Any) -> Weights:
        patches, linear, cells = cache
        n = len(grad)
        to_cells = (grad @ self._weights["dense"].T).reshape(n, 3, 1, 3, 1, -1) / 4.0
        to_linear = np.broadcast_to(to_cells, (n, 3, 2, 3, 2, linear.shape[-1])).reshape(linear.shape) * (linear > 0)
        flat = to_linear.reshape(-1, linear.shape[-1])
        return {
            "filters": patches.reshape(-1, 9).T @ flat,
            "bias": flat.sum(axis=0),
            "dense": cells.T @ grad,
            "shift": grad.sum(axis=0),
        }


class Transformer(Network):
    """Eight tokens, one per row of pixels: embedding with positions, one attention head with a residual, mean, dense."""

    def make_weights(self, rng: np.random.Generator) -> Weights:
        width = self._config["width"]
        square = {name: rng.standard_normal((width, width)) / np.sqrt(width) for name in ("query", "key", "value")}
        return {
            "embed": rng.standard_normal((8, width)) / np.sqrt(8.0),
            "position": 0.1 * rng.standard_normal((8, width)),
            **square,
            "hidden": rng.standard_normal((width, 2 * width)) / np.sqrt(width),
            "dense": rng.standard_normal((2 * width, 10)) / np.sqrt(2 * width),
            "shift": np.zeros(10),
        }

    def forward(self, x: Any) -> tuple[Any, Any]:
        w = self._weights
        rows = x.reshape(len(x), 8, 8)
        tokens = rows @ w["embed"] + w["position"]  # (n, 8, width)
        query, key, value = tokens @ w["query"], tokens @ w["key"], tokens @ w["value"]
        scale = 1.0 / np.sqrt(tokens.shape[-1])
        attention = softmax(query @ key.transpose(0, 2, 1) * scale)  # (n, 8, 8)
        mixed = tokens + attention @ value
        linear = mixed @ w["hidden"]  # (n, 8, 2 width)
        pooled = np.maximum(linear, 0.0).mean(axis=1)
        return pooled @ w["dense"] + w["shift"], (
            rows,
            tokens,
            query,
            key,
            value,
            attention,
            mixed,
            linear,
            pooled,
            scale,
        )

    def back(self, grad: Any, cache: Any) -> Weights:
        rows, tokens, query, key, value, attention, mixed, linear, pooled, scale = cache
        w = self._weights
        to_linear = (grad @ w["dense"].T)[:, None, :] / 8.0 * (linear > 0)
        to_mixed = to_linear @ w["hidden"].T
        to_value = attention.transpose(0, 2, 1) @ to_mixed
        to_attention = to_mixed @ value.transpose(0, 2, 1)
        to_scores = attention * (to_attention - (to_attention * attention).sum(axis=-1, keepdims=True)) * scale
        to_query, to_key = to_scores @ key, to_scores.transpose(0, 2, 1) @ query
        to_tokens = to_mixed + to_query @ w["query"].T + to_key @ w["key"].T + to_value @ w["value"].T

        def of(inputs: Any, outputs: Any) -> Any:
            return np.einsum("nti,ntj->ij", inputs, outputs, optimize=True)

        return {
            "embed": of(rows, to_tokens),
            "position": to_tokens.sum(axis=0),
            "query": of(tokens, to_query),
            "key": of(tokens, to_key),
            "value": of(tokens, to_value),
            "hidden": of(mixed, to_linear),
            "dense": pooled.T @ grad,
            "shift": grad.sum(axis=0),
        }
