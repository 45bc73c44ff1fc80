"""k-means by scattered sums."""
import torch


x = torch.cat([torch.sin(torch.arange(20.)).view(-1, 2), torch.cos(torch.arange(20.)).view(-1, 2) + 3], 0)
N, D = x.shape; K = 2
c = x[:K, :].clone()
for i in range(5):
    dist = ((x[:, None, :] - c[None, :, :]) ** 2).sum(-1)
    cl = dist.argmin(dim=1).long().view(-1)
    c.zero_()
    c.scatter_add_(0, cl[:, None].repeat(1, D) if False else cl[:, None].expand(N, D), x)
    Ncl = torch.bincount(cl, minlength=K).type_as(c).view(K, 1)
    c /= Ncl
U, S, V = torch.pca_lowrank(x, q=2)
u, s, vh = torch.linalg.svd(x - x.mean(0), full_matrices=False)
uniq, counts = torch.unique(cl, return_counts=True)
result = [c, cl, s, torch.cov(x.T), torch.corrcoef(x.T), counts, torch.quantile(x, 0.3, dim=0), torch.histc(x, bins=4, min=-1, max=4)]
