"""A conditional random field: forward algorithm and Viterbi."""
import torch
import torch.nn as nn


def fill(model):
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_((torch.sin(torch.arange(p.numel()).float() * 1.3 + number) * 0.3).view(p.shape))
    return model


class CRF(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.transitions = nn.Parameter(torch.empty(n, n))
        self.start = nn.Parameter(torch.empty(n))
        nn.init.uniform_(self.transitions, -0.1, 0.1)
    def forward(self, emissions, tags, mask):
        return (self._score(emissions, tags, mask) - self._norm(emissions, mask)).mean()
    def _score(self, e, tags, mask):
        T, B = tags.shape
        mask = mask.float()
        score = self.start[tags[0]] + e[0, torch.arange(B), tags[0]]
        for i in range(1, T):
            score += self.transitions[tags[i - 1], tags[i]] * mask[i]
            score += e[i, torch.arange(B), tags[i]] * mask[i]
        return score
    def _norm(self, e, mask):
        score = self.start + e[0]
        for i in range(1, e.size(0)):
            nxt = torch.logsumexp(score.unsqueeze(2) + self.transitions + e[i].unsqueeze(1), dim=1)
            score = torch.where(mask[i].unsqueeze(1), nxt, score)
        return torch.logsumexp(score, dim=1)
    @torch.no_grad()
    def viterbi(self, e):
        score, history = self.start + e[0], []
        for i in range(1, e.size(0)):
            nxt = score.unsqueeze(2) + self.transitions + e[i].unsqueeze(1)
            score, idx = nxt.max(dim=1)
            history.append(idx)
        best = [score[0].argmax().item()]
        for h in reversed(history):
            best.insert(0, h[0][best[0]].item())
        return best
crf = fill(CRF(3))
e = torch.sin(torch.arange(4 * 2 * 3).float()).view(4, 2, 3).requires_grad_()
tags = torch.tensor([[0, 1], [2, 1], [1, 0], [0, 2]])
mask = torch.ones(4, 2, dtype=torch.bool); mask[3, 1] = False
ll = crf(e, tags, mask)
(-ll).backward()
result = [ll.item(), crf.transitions.grad, e.grad, crf.viterbi(e)]
