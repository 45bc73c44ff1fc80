"""An LSTM that predicts the next value of a wave."""
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
    def __init__(self, hidden=5):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x, state=None):
        out, state = self.lstm(x, state)
        return self.head(out[:, -1, :]).squeeze(-1), state


wave = torch.sin(torch.linspace(0, 6.28, 12))
x = wave.unfold(0, 5, 1)[:-1].unsqueeze(-1)
y = wave[5:]
model = fill(Net())
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.02)
losses = []
for _ in range(3):
    prediction, (h, c) = model(x)
    loss = F.mse_loss(prediction, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, tuple(h.shape), prediction.detach()]
