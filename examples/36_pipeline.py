"""A model over three workers, one of which is killed in mid-text: the text is that of one process.

    python examples/36_pipeline.py
"""

import os
import signal

import morpho as mo
from morpho import cluster

model, tokenizer = mo.models.load_with_tokenizer(mo.models.SHIPPED)
prompt = tokenizer.encode("In the beginning")
alone = [*mo.models.generate(model, prompt, max_new_tokens=30, temperature=0)]

found = []
with cluster.Pipeline(mo.models.SHIPPED, nodes=3, threads=1) as pipeline:
    for token in pipeline.generate(prompt, max_new_tokens=30, temperature=0):
        found.append(token)
        if len(found) == 10:
            stages = [(place.node, place.start, place.end) for place in pipeline.places]
            os.kill(pipeline.processes[stages[1][0]], signal.SIGKILL)
    after = [(place.node, place.start, place.end) for place in pipeline.places]

print(tokenizer.decode(prompt + found))
print("before:", stages)
print("after: ", after)
assert found == alone
