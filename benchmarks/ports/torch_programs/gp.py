"""A Gaussian process: its likelihood trained on plain tensors."""
import torch


import math
def rbf(a, b, ls, s):
    return s ** 2 * torch.exp(-0.5 * torch.cdist(a / ls, b / ls) ** 2)
X = torch.linspace(0, 4, 6)[:, None]; y = torch.sin(X).squeeze(-1)
log_ls = torch.tensor(0.0, requires_grad=True); log_s = torch.zeros((), requires_grad=True)
opt = torch.optim.Adam([log_ls, log_s], lr=0.05)
h = []
for _ in range(3):
    opt.zero_grad()
    K = rbf(X, X, log_ls.exp(), log_s.exp()) + 1e-2 * torch.eye(6)
    L = torch.linalg.cholesky(K)
    a = torch.cholesky_solve(y.unsqueeze(-1), L)
    nll = 0.5 * (y @ a.squeeze(-1)) + L.diagonal().log().sum() + 0.5 * len(y) * math.log(2 * math.pi)
    nll.backward(); opt.step(); h.append(nll.item())
Xs = torch.tensor([[0.5], [2.2]])
with torch.no_grad():
    Ks = rbf(X, Xs, log_ls.exp(), log_s.exp())
    mean = Ks.T @ torch.linalg.solve(K, y)
    v = torch.linalg.solve_triangular(L, Ks, upper=False)
    var = (log_s.exp() ** 2 - (v * v).sum(0)).clamp_min(0)
d = torch.distributions.MultivariateNormal(torch.zeros(6), covariance_matrix=K.detach())
result = [h, mean, var, d.log_prob(y)]
