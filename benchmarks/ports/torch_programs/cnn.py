"""A small convolutional network on squares and crosses."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def fill(model):
    """First values by a formula, so that every library begins at the same place."""
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_((torch.sin(torch.arange(p.numel()).float() * 1.3 + number) * 0.3).view(p.shape))
    return model


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.bn = nn.BatchNorm2d(3)
        self.fc = nn.Linear(3 * 3 * 3, 2)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)
        x = x.view(x.size(0), -1)
        return F.log_softmax(self.fc(x), dim=1)


images = torch.zeros(4, 1, 6, 6)
images[:2, :, 1:5, 1:5] = 1.0
images[2:, :, 3, :] = 1.0
images += 0.1 * torch.cos(torch.arange(144).float()).reshape(4, 1, 6, 6)
target = torch.tensor([0, 0, 1, 1])
model = fill(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = F.nll_loss(model(images), target)
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
result = [losses, model.eval()(images).argmax(dim=1).tolist(), scheduler.get_last_lr()]
