"""A Wasserstein GAN with a penalty on the slope of its critic."""
import torch
import torch.nn as nn


def fill(model):
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_((torch.sin(torch.arange(p.numel()).float() * 1.3 + number) * 0.3).view(p.shape))
    return model


class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1))
    def forward(self, x):
        return self.model(x)
disc, gen = fill(D()), fill(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)))
opt_d, opt_g = torch.optim.Adam(disc.parameters(), lr=1e-2, betas=(0.5, 0.9)), torch.optim.Adam(gen.parameters(), lr=1e-2)
real = torch.stack((torch.cos(torch.arange(6.)), torch.sin(torch.arange(6.))), 1)
z = torch.cos(torch.arange(18.)).view(6, 3)
def gradient_penalty(critic, real, fake):
    alpha = torch.linspace(0, 1, 6).view(6, 1).expand_as(real)
    inter = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    scores = critic(inter)
    gradients = torch.autograd.grad(outputs=scores, inputs=inter, grad_outputs=torch.ones(scores.size()), create_graph=True, retain_graph=True, only_inputs=True)[0]
    gradients = gradients.view(gradients.size(0), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()
out = []
for _ in range(2):
    fake = gen(z)
    gp = gradient_penalty(disc, real.data, fake.data)
    d_loss = -torch.mean(disc(real)) + torch.mean(disc(fake.detach())) + 10 * gp
    opt_d.zero_grad(); d_loss.backward(); opt_d.step()
    opt_g.zero_grad(); g_loss = -torch.mean(disc(gen(z))); g_loss.backward(); opt_g.step()
    out += [d_loss.item(), g_loss.item()]
result = [out]
