"""CausShield in a split-learning loop of one's own: own models, own optimisers, no run folder and no wire."""

import torch
from sklearn.datasets import load_digits
from torch import nn

from veracausa import CausShield

torch.set_num_threads(1)  # for a model this small more threads only wait for each other
digits = load_digits()
pictures, labels = torch.tensor(digits.images / 16).float().unsqueeze(1), torch.tensor(digits.target)
x, y, test_x, test_y = pictures[:1400], labels[:1400], pictures[1400:], labels[1400:]


def train(iterations: int, epochs: int = 6) -> None:
    """Train one bottom and one top model; 0 iterations send the bottom's own output."""
    torch.manual_seed(0)
    bottom = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    top = nn.Sequential(nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(top.parameters(), lr=3e-3)
    shield = CausShield(iterations=iterations)
    shield.bind(bottom, torch.optim.Adam(bottom.parameters(), lr=3e-3), torch.Generator().manual_seed(0))
    shield.prepare(x)  # a surrogate of every row
    for step in range(epochs * 14):
        ids = torch.randperm(1400)[:100]
        payload, context = shield.forward(x[ids], ids, step)  # this is what leaves the passive party
        payload.requires_grad_()
        optimizer.zero_grad()
        nn.functional.cross_entropy(top(payload), y[ids]).backward()
        optimizer.step()
        shield.backward(context, payload.grad)  # updates the bottom with the gradient that comes back
    found = top(shield.infer(test_x, torch.arange(len(test_x)))).argmax(1)
    drift = shield.diagnose(x[:100], torch.arange(100)).get("drift", 0.0)
    print(f"M = {iterations}: accuracy {(found == test_y).float().mean():.3f}, drift {drift:.3f}")


train(iterations=0)
train(iterations=10)
