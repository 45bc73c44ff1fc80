"""Train the last layer of a small CNN, as the tutorial on transfer learning does."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset
import copy, time
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc = nn.Linear(84, 10)
    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc(x)
torch.manual_seed(0)
net = Net()
for param in net.parameters():
    param.requires_grad = False
num_ftrs = net.fc.in_features
net.fc = nn.Linear(num_ftrs, 2)
with torch.no_grad():
    for p in net.parameters():
        p.copy_(torch.cos(torch.arange(p.numel(), dtype=torch.float32)).reshape(p.shape) * 0.2)
images = torch.sin(torch.arange(8*3*32*32, dtype=torch.float32)).reshape(8, 3, 32, 32)
labels = torch.tensor([0, 1, 0, 1, 1, 0, 1, 0])
dataloaders = {x: DataLoader(TensorDataset(images, labels), batch_size=4, shuffle=False) for x in ['train', 'val']}
dataset_sizes = {x: len(dataloaders[x].dataset) for x in ['train', 'val']}
criterion = nn.CrossEntropyLoss()
optimizer_conv = torch.optim.SGD(net.fc.parameters(), lr=0.001, momentum=0.9)
exp_lr_scheduler = lr_scheduler.StepLR(optimizer_conv, step_size=7, gamma=0.1)
history = []
best_acc = 0.0
for epoch in range(2):
    for phase in ['train', 'val']:
        if phase == 'train':
            net.train()
        else:
            net.eval()
        running_loss = 0.0
        running_corrects = 0
        for inputs, lab in dataloaders[phase]:
            inputs = inputs.to("cpu")
            lab = lab.to("cpu")
            optimizer_conv.zero_grad()
            with torch.set_grad_enabled(phase == 'train'):
                outputs = net(inputs)
                _, preds = torch.max(outputs, 1)
                loss = criterion(outputs, lab)
                if phase == 'train':
                    loss.backward()
                    optimizer_conv.step()
            running_loss += loss.item() * inputs.size(0)
            running_corrects += torch.sum(preds == lab.data)
        if phase == 'train':
            exp_lr_scheduler.step()
        epoch_loss = running_loss / dataset_sizes[phase]
        epoch_acc = running_corrects.double() / dataset_sizes[phase]
        history += [epoch_loss, float(epoch_acc)]
        if phase == 'val' and epoch_acc > best_acc:
            best_acc = epoch_acc
            best_model_wts = copy.deepcopy(net.state_dict())
net.load_state_dict(best_model_wts)
classes = ('plane', 'car')
correct_pred = {classname: 0 for classname in classes}
with torch.no_grad():
    outputs = net(images)
    _, predictions = torch.max(outputs, 1)
    for label, prediction in zip(labels, predictions):
        if label == prediction:
            correct_pred[classes[label]] += 1
result = [history, list(correct_pred.values())]
