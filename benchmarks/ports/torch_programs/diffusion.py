"""Diffusion on points of a circle, noise by a formula."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def fill(model):
    """First values by a formula, so that every library begins at the same place."""
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_((torch.sin(torch.arange(p.numel()).float() * 1.3 + number) * 0.3).view(p.shape))
    return model


steps = 10
betas = torch.linspace(1e-3, 0.2, steps)
alphas = torch.cumprod(1.0 - betas, dim=0)
angle = torch.arange(8).float() / 8 * 2 * torch.pi
x0 = torch.stack([torch.cos(angle), torch.sin(angle)], dim=1)
model = fill(nn.Sequential(nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 2)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for step in range(3):
    t = torch.arange(8).add(step).remainder(steps)
    noise = torch.sin(torch.arange(16).float() + step).view(8, 2)
    a = alphas[t].unsqueeze(-1)
    xt = a.sqrt() * x0 + (1 - a).sqrt() * noise
    guess = model(torch.cat([xt, t.float().unsqueeze(1) / steps], dim=-1))
    loss = (guess - noise).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, alphas]
