"""Classify names by their letters with an RNN."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import string, unicodedata
allowed_characters = string.ascii_letters + " .,;'" + "_"
n_letters = len(allowed_characters)
def unicodeToAscii(s):
    return ''.join(c for c in unicodedata.normalize('NFD', s) if unicodedata.category(c) != 'Mn' and c in allowed_characters)
def letterToIndex(letter):
    return allowed_characters.find(letter) if letter in allowed_characters else allowed_characters.find("_")
def lineToTensor(line):
    tensor = torch.zeros(len(line), 1, n_letters)
    for li, letter in enumerate(line):
        tensor[li][0][letterToIndex(letter)] = 1
    return tensor
class CharRNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super(CharRNN, self).__init__()
        self.rnn = nn.RNN(input_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)
    def forward(self, line_tensor):
        rnn_out, hidden = self.rnn(line_tensor)
        output = self.h2o(hidden[0])
        output = self.softmax(output)
        return output
rnn = CharRNN(n_letters, 16, 3)
with torch.no_grad():
    for i, p in enumerate(rnn.parameters()):
        p.copy_((torch.arange(p.numel()).reshape(p.shape) % 7 - 3) * 0.05)
def label_from_output(output, output_labels):
    top_n, top_i = output.topk(1)
    label_i = top_i[0].item()
    return output_labels[label_i], label_i
names = [("Satoshi", 0), ("Nguyen", 1), ("Smith", 2), ("Ślusàrski", 1)]
criterion = nn.NLLLoss()
optimizer = torch.optim.SGD(rnn.parameters(), lr=0.15)
rnn.train()
losses = []
for epoch in range(4):
    rnn.zero_grad()
    batch_loss = 0
    for name, label in names:
        output = rnn.forward(lineToTensor(unicodeToAscii(name)))
        loss = criterion(output, torch.tensor([label], dtype=torch.long))
        batch_loss += loss
    batch_loss.backward()
    nn.utils.clip_grad_norm_(rnn.parameters(), 3)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(batch_loss.item() / len(names))
confusion = torch.zeros(3, 3)
rnn.eval()
with torch.no_grad():
    for name, label in names:
        guess, guess_i = label_from_output(rnn(lineToTensor(unicodeToAscii(name))), [0, 1, 2])
        confusion[label][guess_i] += 1
for i in range(3):
    denom = confusion[i].sum()
    if denom > 0:
        confusion[i] = confusion[i] / denom
result = [losses, confusion.numpy()]
