"""An encoder and a decoder with attention, trained with the right words before."""
import torch
import torch.nn as nn


def fill(model):
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_((torch.sin(torch.arange(p.numel()).float() * 1.3 + number) * 0.3).view(p.shape))
    return model


class Encoder(nn.Module):
    def __init__(self, vocab, emb, hid):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=0)
        self.rnn = nn.GRU(emb, hid, num_layers=1, batch_first=True)
    def forward(self, src):
        out, hidden = self.rnn(self.embedding(src))
        return out, hidden
class Decoder(nn.Module):
    def __init__(self, vocab, emb, hid):
        super().__init__()
        self.vocab = vocab
        self.embedding = nn.Embedding(vocab, emb)
        self.rnn = nn.GRU(emb + hid, hid, batch_first=True)
        self.attn = nn.Linear(hid * 2, 1)
        self.fc = nn.Linear(hid, vocab)
    def forward(self, token, hidden, enc):
        emb = self.embedding(token.unsqueeze(1))
        h = hidden[-1].unsqueeze(1).repeat(1, enc.size(1), 1) if False else hidden[-1].unsqueeze(1).expand(-1, enc.size(1), -1)
        weights = torch.softmax(self.attn(torch.cat((h, enc), dim=2)).squeeze(2), dim=1)
        context = torch.bmm(weights.unsqueeze(1), enc)
        out, hidden = self.rnn(torch.cat([emb, context], 2), hidden)
        return self.fc(out.squeeze(1)), hidden
enc, dec = fill(Encoder(11, 6, 8)), fill(Decoder(11, 6, 8))
src = torch.tensor([[1, 4, 5, 2, 0], [1, 7, 3, 9, 2]]).long()
tgt = torch.LongTensor([[1, 5, 4, 2], [1, 9, 3, 2]])
opt = torch.optim.Adam(list(enc.parameters()) + list(dec.parameters()), lr=0.01)
criterion = nn.CrossEntropyLoss(ignore_index=0)
losses = []
for epoch in range(3):
    opt.zero_grad()
    enc_out, hidden = enc(src)
    outputs = torch.zeros(tgt.shape[0], tgt.shape[1] - 1, dec.vocab)
    token = tgt[:, 0]
    for t in range(1, tgt.size(1)):
        logits, hidden = dec(token, hidden, enc_out)
        outputs[:, t - 1] = logits
        token = tgt[:, t]
    loss = criterion(outputs.reshape(-1, dec.vocab), tgt[:, 1:].reshape(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(enc.parameters(), max_norm=1.0)
    opt.step()
    losses.append(loss.item())
result = [losses, outputs.argmax(dim=-1)]
