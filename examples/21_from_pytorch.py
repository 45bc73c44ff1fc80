"""A PyTorch training loop, line by line: PyTorch in the comments, Morpho beside it. PyTorch is not needed.

    python examples/21_from_pytorch.py [FOLDER]

The weights go into the folder, or into one that is deleted in the end.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import morpho as mo  # import torch
from morpho import nn  # from torch import nn


class Net(nn.Module):                                      # class Net(nn.Module):
    def __init__(self):                                    #     def __init__(self):
        self.hidden = nn.Linear(8, 32)                     #         super().__init__()      (not needed, allowed)
        self.norm = nn.LayerNorm(32)                       #         ... the same layers and the same names
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(32, 3)

    def forward(self, x):                                  #     def forward(self, x):
        x = self.norm(mo.gelu(self.hidden(x)))             #         x = self.norm(F.gelu(self.hidden(x)))
        return self.out(self.drop(x))                      #         return self.out(self.drop(x))


rng = np.random.default_rng(0)
inputs = rng.normal(size=(256, 8)).astype(np.float32)
labels = inputs[:, :3].argmax(axis=1)

nn.seed(0)                                                 # torch.manual_seed(0)
model = Net()                                              # model = Net()
opt = mo.optim.AdamW(model.parameters(), lr=1e-2)          # torch.optim.AdamW: its weight_decay defaults to 0.01 too
schedule = mo.optim.CosineAnnealingLR(opt, T_max=20)       # torch.optim.lr_scheduler.CosineAnnealingLR
criterion = nn.CrossEntropyLoss()                          # classes on axis 1; dim=-1 for another axis
data = mo.data.TensorDataset(inputs, labels)               # TensorDataset(torch.from_numpy(inputs), ...)
loader = mo.data.DataLoader(data, 64, shuffle=True)        # num_workers=2 are threads, not processes


@mo.compile                                                # torch.compile(model): the model only
def step(x, y):                                            # Morpho: the whole step, update included
    loss = criterion(model(x), y)                          #     loss = criterion(model(x), y)
    loss.backward()                                        #     loss.backward()
    mo.optim.clip_grad_norm(model.parameters(), 1.0)       #     nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()                                             #     opt.step()
    opt.zero_grad()                                        #     opt.zero_grad()
    return loss


model.train()                                              # model.train()
for _epoch in range(20):
    for x, y in loader:                                    #     x, y = x.to(device), y.to(device): nothing to move
        loss = step(x, y)
    schedule.step()                                        #     schedule.step()
print("loss", loss.item())                                 # loss.item()

model.eval()                                               # model.eval()
with mo.no_grad():                                         # with torch.no_grad():
    right = model(inputs).argmax(axis=-1) == labels        #     dim= is axis=, keepdim= is keepdims=
accuracy = mo.count_nonzero(right).item() / len(labels)    # right.float().mean().item()
print("right", accuracy)

temporary = tempfile.TemporaryDirectory()
path = Path(sys.argv[1] if len(sys.argv) > 1 else temporary.name) / "net.safetensors"
mo.weights.save(path, model.state_dict())                  # safetensors.torch.save_file(model.state_dict(), ...)
again = Net()
again.load_state_dict(mo.weights.load(path))               # the names are PyTorch's: weights go both ways
assert again.eval()(inputs).numpy().tobytes() == model(inputs).numpy().tobytes() and accuracy > 0.9
