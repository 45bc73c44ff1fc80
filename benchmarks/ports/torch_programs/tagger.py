"""A tagger of words: packed sequences through a bidirectional LSTM."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def fill(model):
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_((torch.sin(torch.arange(p.numel()).float() * 1.3 + number) * 0.3).view(p.shape))
    return model


from torch.nn.utils.rnn import pad_sequence, pack_padded_sequence, pad_packed_sequence
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(10, 5)
        self.lstm = nn.LSTM(5, 4, num_layers=2, bidirectional=True, batch_first=True, dropout=0.0)
        self.fc = nn.Linear(8, 3)
    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.emb(x), lengths, batch_first=True, enforce_sorted=False)
        out, (h, c) = self.lstm(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        return self.fc(out), h
seqs = [torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6, 7, 8]), torch.tensor([9, 1])]
x = pad_sequence(seqs, batch_first=True, padding_value=0)
lengths = torch.tensor([len(s) for s in seqs])
m = fill(Tagger())
logits, h = m(x, lengths)
target = torch.full_like(x, -100); target[x > 0] = x[x > 0] % 3
loss = F.cross_entropy(logits.view(-1, 3), target.view(-1), ignore_index=-100)
loss.backward()
h0 = torch.zeros(4, 3, 4); c0 = torch.zeros(4, 3, 4)
o2, (hn, cn) = m.lstm(m.emb(x), (h0, c0))
result = [logits.detach(), h.detach(), loss.item(), m.lstm.weight_ih_l0.grad, hn.detach()]
