"""Fine-tuning from a checkpoint: the model that ships with Morpho learns a nursery rhyme.

    python examples/17_fine_tune.py [STEPS] [FOLDER]

The run goes into the folder, or into one that is deleted in the end.
On the command line: morpho train --start FOLDER --data rhyme.txt --out rhymes && morpho run rhymes "This is"
"""

import sys
import tempfile
from pathlib import Path

import morpho as mo
from morpho.models.training import Run, Settings

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
RHYME = """This is the farmer sowing his corn,
That kept the cock that crowed in the morn,
That waked the priest all shaven and shorn,
That married the man all tattered and torn,
That kissed the maiden all forlorn,
That milked the cow with the crumpled horn,
That tossed the dog,
That worried the cat,
That killed the rat,
That ate the malt
That lay in the house that Jack built.
"""


def write(model, tokenizer):
    """What a model makes of the rhyme's first words, always taking the likeliest token."""
    ids = tokenizer.encode("This is the farmer")
    return tokenizer.decode([*ids, *mo.models.generate(model, ids, max_new_tokens=24)])


before, tokenizer = mo.models.load_with_tokenizer(mo.models.SHIPPED)  # any folder of GPT-2 or Llama form does
print("before:", write(before, tokenizer))

# Everything trains, at a low rate; form and tokenizer are those of the model it starts from.
temporary = tempfile.TemporaryDirectory()
folder = Path(sys.argv[2] if len(sys.argv) > 2 else temporary.name)
(folder / "rhyme.txt").write_text(RHYME * 4, encoding="utf-8")
settings = Settings(steps=steps, context=32, batch=4, lr=3e-4, warmup=5)
run = Run(folder / "rhymes", folder / "rhyme.txt", settings, start=mo.models.SHIPPED)
for progress in run.advance(check_every=0):
    if progress.step % 20 == 1:
        print(f"step {progress.step}: loss {progress.loss:.3f}")
assert run.losses[-1] < run.losses[0]

after, tokenizer = mo.models.load_with_tokenizer(folder / "rhymes")  # what `morpho run rhymes "This is"` does
print("after:", write(after, tokenizer))

# Or only a part trains: the rest is frozen, and the optimiser is given what is left.
after.requires_grad_(False)
after.norm.requires_grad_()
after.layers[-1].requires_grad_()
trained = [p for p in after.parameters() if p.requires_grad]
opt = mo.optim.AdamW(trained, lr=1e-4)
ids = mo.asarray([tokenizer.encode(RHYME)[:33]])
mo.cross_entropy(after.train()(ids[:, :-1]), ids[:, 1:]).backward()
opt.step()
print(f"{sum(p.size for p in trained):,} of {after.parameter_count():,} parameters trained in the last step")
