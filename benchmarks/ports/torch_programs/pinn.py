"""A network that learns a damped oscillator from its equation: gradients of gradients."""
import torch
import torch.nn as nn


def fill(model):
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_((torch.sin(torch.arange(p.numel()).float() * 1.3 + number) * 0.3).view(p.shape))
    return model


net = fill(nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)))
t_boundary = torch.tensor(0.).view(-1, 1).requires_grad_(True)
t = torch.linspace(0, 1, 10).view(-1, 1).requires_grad_(True)
optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
d, w0 = 2, 20
mu, k = 2 * d, w0 ** 2
out = []
for i in range(3):
    optimiser.zero_grad()
    u = net(t_boundary)
    loss1 = (torch.squeeze(u) - 1) ** 2
    dudt = torch.autograd.grad(u, t_boundary, torch.ones_like(u), create_graph=True)[0]
    loss2 = (torch.squeeze(dudt) - 0) ** 2
    u = net(t)
    dudt = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]
    d2udt2 = torch.autograd.grad(dudt, t, torch.ones_like(dudt), create_graph=True)[0]
    loss3 = torch.mean((d2udt2 + mu * dudt + k * u) ** 2)
    loss = loss1 + 1e-1 * loss2 + 1e-4 * loss3
    loss.backward()
    optimiser.step()
    out.append(loss.item())
result = [out, d2udt2.detach()]
