"""A graph convolution by scattered sums, and a sparse product."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def fill(model):
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_((torch.sin(torch.arange(p.numel()).float() * 1.3 + number) * 0.3).view(p.shape))
    return model


class GCNConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lin = nn.Linear(i, o, bias=False)
        self.bias = nn.Parameter(torch.empty(o))
        self.reset_parameters()
    def reset_parameters(self):
        nn.init.xavier_uniform_(self.lin.weight)
        self.bias.data.zero_()
    def forward(self, x, edge_index):
        row, col = edge_index
        deg = torch.zeros(x.size(0)).scatter_add_(0, col, torch.ones(col.numel()))
        dis = deg.pow(-0.5)
        dis[dis == float("inf")] = 0
        norm = dis[row] * dis[col]
        msg = norm.view(-1, 1) * self.lin(x)[row]
        out = torch.zeros(x.size(0), msg.size(-1)).index_add_(0, col, msg)
        return out + self.bias
class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = GCNConv(4, 8), GCNConv(8, 2)
    def forward(self, x, e):
        x = F.dropout(F.relu(self.c1(x, e)), p=0.0, training=self.training)
        return F.log_softmax(self.c2(x, e), dim=1)
edges = torch.tensor([[0, 1], [1, 0], [1, 2], [2, 1], [3, 2], [0, 3], [0, 0], [1, 1], [2, 2], [3, 3]]).t().contiguous()
m, x = fill(GCN()), torch.sin(torch.arange(16.)).view(4, 4)
y, mask = torch.tensor([0, 1, 1, 0]), torch.tensor([True, True, False, True])
opt = torch.optim.Adam(m.parameters(), lr=0.01, weight_decay=5e-4)
h = []
for _ in range(3):
    m.train(); opt.zero_grad()
    loss = F.nll_loss(m(x, edges)[mask], y[mask])
    loss.backward(); opt.step(); h.append(loss.item())
adj = torch.zeros(4, 4); adj[edges[0], edges[1]] = 1.
adj_sp = torch.sparse_coo_tensor(edges, torch.ones(edges.shape[1]), (4, 4))
acc = (m(x, edges)[mask].max(dim=1)[1] == y[mask]).float().mean()
result = [h, acc, adj, torch.sparse.mm(adj_sp, x)]
