"""A generator and a discriminator of points on a line."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def fill(model):
    """First values by a formula, so that every library begins at the same place."""
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_((torch.sin(torch.arange(p.numel()).float() * 1.3 + number) * 0.3).view(p.shape))
    return model


generator = fill(nn.Sequential(nn.Linear(2, 6), nn.LeakyReLU(0.2), nn.Linear(6, 1)))
critic = fill(nn.Sequential(nn.Linear(1, 6), nn.LeakyReLU(0.2), nn.Linear(6, 1), nn.Sigmoid()))
g_rule = torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.999))
d_rule = torch.optim.Adam(critic.parameters(), lr=0.01, betas=(0.5, 0.999))
loss_of = nn.BCELoss()
real = torch.linspace(2, 3, 8).unsqueeze(1)
noise = torch.sin(torch.arange(16).float()).view(8, 2)
ones, zeros = torch.ones(8, 1), torch.zeros(8, 1)
losses = []
for _ in range(2):
    fake = generator(noise)
    d_rule.zero_grad()
    d_loss = loss_of(critic(real), ones) + loss_of(critic(fake.detach()), zeros)
    d_loss.backward()
    d_rule.step()
    g_rule.zero_grad()
    g_loss = loss_of(critic(generator(noise)), ones)
    g_loss.backward()
    g_rule.step()
    losses += [d_loss.item(), g_loss.item()]
result = [losses]
