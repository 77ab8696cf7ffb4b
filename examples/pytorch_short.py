"""Tune a plain PyTorch loop as it is: the training code is a generator that yields its loss after each epoch."""

import torch
from sklearn.datasets import load_digits
from torch import nn

from shoestring import Float, Int, tune

IMAGES, LABELS = load_digits(return_X_y=True)
X, Y = torch.tensor(IMAGES / 16, dtype=torch.float32), torch.tensor(LABELS)


def train(config):
    model = nn.Sequential(nn.Linear(64, config["units"]), nn.ReLU(), nn.Linear(config["units"], 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    for _ in range(20):
        for rows in torch.randperm(1000).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(X[rows]), Y[rows]).backward()
            optimizer.step()
        yield nn.functional.cross_entropy(model(X[1000:]), Y[1000:]).item()


if __name__ == "__main__":
    space = {"lr": Float(1e-4, 0.1, log=True), "units": Int(8, 128, log=True)}
    study = tune(train, space, budget="100 epochs", max_steps=20, seed=1, store="short.db")
    print(f"loss {study.best.value:.4f} with {study.best.config}")
