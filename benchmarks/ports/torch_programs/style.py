"""Style transfer: an image trained by L-BFGS."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def fill(model):
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_((torch.sin(torch.arange(p.numel()).float() * 1.3 + number) * 0.3).view(p.shape))
    return model


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    G = torch.mm(features, features.t())
    return G.div(a * b * c * d)
class StyleLoss(nn.Module):
    def __init__(self, target_feature):
        super().__init__()
        self.target = gram_matrix(target_feature).detach()
    def forward(self, input):
        G = gram_matrix(input)
        self.loss = F.mse_loss(G, self.target)
        return input
class Normalization(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)
    def forward(self, img):
        return (img - self.mean) / self.std
style = torch.sigmoid(torch.sin(torch.arange(3 * 36).float())).view(1, 3, 6, 6)
content = torch.sigmoid(torch.cos(torch.arange(3 * 36).float())).view(1, 3, 6, 6)
conv = fill(nn.Conv2d(3, 4, 3, padding=1))
for p in conv.parameters():
    p.requires_grad_(False)
norm = Normalization([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
model = nn.Sequential(norm)
model.add_module("conv_1", conv)
sl = StyleLoss(model(style).detach())
model.add_module("style_loss_1", sl)
img = content.clone()
img.requires_grad_(True)
opt = torch.optim.LBFGS([img])
run = [0]
trace = []
while run[0] <= 4:
    def closure():
        with torch.no_grad():
            img.clamp_(0, 1)
        opt.zero_grad()
        model(img)
        loss = sl.loss * 1e3
        loss.backward()
        run[0] += 1
        trace.append(loss.item())
        return loss
    opt.step(closure)
with torch.no_grad():
    img.clamp_(0, 1)
result = [trace[:3], trace[-1] < trace[0]]
