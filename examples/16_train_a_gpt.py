"""A GPT trained on a text, letter by letter: token file, windows, a compiled step, and what it writes in the end.

    python examples/16_train_a_gpt.py [STEPS] [TEXT] [FOLDER]

Without a text it reads some of the Shakespeare that the model of `morpho run` was trained on. 2000 steps take
minutes and write words. The token file goes into the folder, or into one that is deleted in the end. `morpho train` is
the grown-up version, with a tokenizer, checkpoints and resuming.
"""

import lzma
import sys
import tempfile
from pathlib import Path

import numpy as np

import morpho as mo

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
if len(sys.argv) > 2:
    text = Path(sys.argv[2]).read_text(encoding="utf-8")
else:
    with lzma.open(Path(__file__).parent.parent / "benchmarks/corpus/corpus.txt.xz", "rt", encoding="utf-8") as file:
        text = file.read(500_000)
letters = sorted(set(text))
number = {letter: index for index, letter in enumerate(letters)}
temporary = tempfile.TemporaryDirectory()
folder = Path(sys.argv[3] if len(sys.argv) > 3 else temporary.name)
path = mo.data.write_tokens(folder / "text.npy", np.array([number[letter] for letter in text]))

length, batch = 64, 16
windows = mo.data.TokenFile(path, length=length, stride=1, vocabulary=len(letters))
loader = mo.data.DataLoader(windows, batch_size=batch, shuffle=True, seed=0, num_workers=1)

mo.nn.seed(0)
model = mo.models.create("gpt2", vocab_size=len(letters), n_positions=128, n_embd=64, n_layer=2, n_head=4)
opt = mo.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
schedule = mo.optim.WarmupCosineLR(opt, warmup_iters=steps // 20, total_iters=steps)
print(f"{len(text):,} letters, {len(letters)} different ones, {model.parameter_count():,} parameters")


@mo.compile
def step(inputs, targets):
    loss = mo.cross_entropy(model(inputs), targets)  # (batch, length, letters) against (batch, length)
    loss.backward()
    mo.optim.clip_grad_norm(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    return loss


losses = []
for count, (inputs, targets) in zip(range(steps), loader):
    losses.append(step(inputs, targets).item())
    schedule.step()
    if count % (max(1, steps // 5)) == 0:
        print(f"step {count}: loss {losses[-1]:.3f}")
assert losses[-1] < losses[0] and step.stats["recompiles"] == 0

start = text[:12]
prompt = [number[letter] for letter in start]
made = mo.models.generate(model.eval(), prompt, max_new_tokens=100, temperature=0.8, top_k=20, seed=1)
print(start + "".join(letters[index] for index in made))
