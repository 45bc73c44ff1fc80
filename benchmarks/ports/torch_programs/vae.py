"""A variational autoencoder, its noise by a formula."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def fill(model):
    """First values by a formula, so that every library begins at the same place."""
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_((torch.sin(torch.arange(p.numel()).float() * 1.3 + number) * 0.3).view(p.shape))
    return model


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(6, 4)
        self.mu, self.logvar = nn.Linear(4, 2), nn.Linear(4, 2)
        self.decoder = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 6))

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.cos(torch.arange(std.numel(), dtype=torch.float32)).view_as(std)
        return mu + eps * std

    def forward(self, x):
        h = F.relu(self.encoder(x))
        mu, logvar = self.mu(h), self.logvar(h)
        return torch.sigmoid(self.decoder(self.reparameterize(mu, logvar))), mu, logvar


x = (torch.sin(torch.arange(30).float()).view(5, 6) > 0).float()
model = fill(VAE())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for _ in range(3):
    recon, mu, logvar = model(x)
    bce = F.binary_cross_entropy(recon, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    loss = bce + kld
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, recon.detach().round(decimals=3)]
