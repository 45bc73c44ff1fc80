"""A small U-Net that segments, with the Dice loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def fill(model):
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_((torch.sin(torch.arange(p.numel()).float() * 1.3 + number) * 0.3).view(p.shape))
    return model


def double_conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1), nn.GroupNorm(2, o), nn.LeakyReLU(0.1))
class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2 = double_conv(1, 4), double_conv(4, 8)
        self.pool = nn.MaxPool2d(2)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.conv = double_conv(12, 4)
        self.out = nn.Conv2d(4, 2, 1)
    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        u = self.up(b)
        d = F.interpolate(b, size=a.shape[2:], mode="nearest")
        return self.out(self.conv(torch.cat([u + 0 * d, a], dim=1)))
def dice_loss(pred, target, smooth=1.):
    pred, target = pred.contiguous(), target.contiguous()
    inter = (pred * target).sum(dim=2).sum(dim=2)
    loss = (1 - ((2. * inter + smooth) / (pred.sum(dim=2).sum(dim=2) + target.sum(dim=2).sum(dim=2) + smooth)))
    return loss.mean()
m = fill(UNet())
x = torch.sin(torch.arange(2 * 64).float()).view(2, 1, 8, 8)
mask = torch.zeros(2, 2, 8, 8); mask[:, 0, 2:5, 3:6] = 1; mask[:, 1] = 1 - mask[:, 0]
opt = torch.optim.RMSprop(m.parameters(), lr=1e-3, alpha=0.9)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, "min", patience=1, factor=0.5)
h = []
for _ in range(2):
    out = m(x)
    loss = F.binary_cross_entropy_with_logits(out, mask) * 0.5 + dice_loss(torch.sigmoid(out), mask) * 0.5
    opt.zero_grad(); loss.backward(); opt.step(); sched.step(loss); h.append(loss.item())
iou = ((out > 0) & (mask > 0.5)).float().sum((1, 2, 3)) / ((out > 0) | (mask > 0.5)).float().sum((1, 2, 3)).clamp(min=1e-6)
result = [h, out.detach(), iou]
