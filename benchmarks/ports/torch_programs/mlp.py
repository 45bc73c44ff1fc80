"""An MLP trained with Adam."""
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
        self.fc1 = nn.Linear(4, 8)
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        return self.fc2(x)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = fill(Net().to(device))
x = torch.sin(torch.arange(48).float()).view(12, 4).to(device)
y = torch.arange(12).remainder(3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()
losses = []
model.train()
for epoch in range(4):
    optimizer.zero_grad(set_to_none=True)
    loss = criterion(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    predicted = model(x).max(dim=1)[1]
result = [losses, (predicted == y).float().mean().item()]
