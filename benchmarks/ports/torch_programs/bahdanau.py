"""Sequence to sequence with Bahdanau attention and teacher forcing."""
import torch
import torch.nn as nn
import torch.nn.functional as F
class BahdanauAttention(nn.Module):
    def __init__(self, hidden_size):
        super(BahdanauAttention, self).__init__()
        self.Wa = nn.Linear(hidden_size, hidden_size)
        self.Ua = nn.Linear(hidden_size, hidden_size)
        self.Va = nn.Linear(hidden_size, 1)
    def forward(self, query, keys):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys)))
        scores = scores.squeeze(2).unsqueeze(1)
        weights = F.softmax(scores, dim=-1)
        context = torch.bmm(weights, keys)
        return context, weights
class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size, dropout_p=0.0):
        super().__init__()
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)
        self.dropout = nn.Dropout(dropout_p)
    def forward(self, input):
        return self.gru(self.dropout(self.embedding(input)))
class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size):
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.attention = BahdanauAttention(hidden_size)
        self.gru = nn.GRU(2 * hidden_size, hidden_size, batch_first=True)
        self.out = nn.Linear(hidden_size, output_size)
    def forward(self, encoder_outputs, encoder_hidden, target_tensor=None, length=4):
        batch_size = encoder_outputs.size(0)
        decoder_input = torch.empty(batch_size, 1, dtype=torch.long).fill_(0)
        decoder_hidden = encoder_hidden
        decoder_outputs, attentions = [], []
        for i in range(length):
            embedded = self.embedding(decoder_input)
            query = decoder_hidden.permute(1, 0, 2)
            context, attn_weights = self.attention(query, encoder_outputs)
            input_gru = torch.cat((embedded, context), dim=2)
            output, decoder_hidden = self.gru(input_gru, decoder_hidden)
            output = self.out(output)
            decoder_outputs.append(output)
            attentions.append(attn_weights)
            if target_tensor is not None:
                decoder_input = target_tensor[:, i].unsqueeze(1)
            else:
                _, topi = output.topk(1)
                decoder_input = topi.squeeze(-1).detach()
        decoder_outputs = torch.cat(decoder_outputs, dim=1)
        return F.log_softmax(decoder_outputs, dim=-1), decoder_hidden, torch.cat(attentions, dim=1)
enc, dec = EncoderRNN(10, 8), AttnDecoderRNN(8, 10)
with torch.no_grad():
    for p in [*enc.parameters(), *dec.parameters()]:
        p.copy_(torch.sin(torch.arange(p.numel(), dtype=torch.float32)).view_as(p) * 0.3)
x = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]]); y = torch.tensor([[4, 3, 2, 1], [8, 7, 6, 5]])
opts = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (enc, dec)]
crit = nn.NLLLoss()
losses = []
for _ in range(3):
    for o in opts: o.zero_grad()
    eo, eh = enc(x)
    out, _, _ = dec(eo, eh, y)
    loss = crit(out.view(-1, out.size(-1)), y.view(-1))
    loss.backward()
    for o in opts: o.step()
    losses.append(loss.item())
with torch.no_grad():
    out, _, att = dec(*enc(x))
    _, topi = out.topk(1)
    ids = topi.squeeze()
result = [losses, ids.numpy(), att.numpy()]
