"""A model behind OpenAI's API, in this process: a stream, a chat with a tool, and figures.

    python examples/31_serve.py [MODEL]

MODEL is a folder or a GGUF file; without one, the small model that ships with Morpho goes on with a text. The same from
a shell is `morpho serve MODEL`, and any client of OpenAI's API can ask it.
"""

import json
import sys
import urllib.request

import morpho as mo
from morpho.serve.http.background import Server


def post(url, **body):
    """The lines that a server answers with."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        yield from response


with Server({"model": sys.argv[1] if len(sys.argv) > 1 else mo.models.SHIPPED}) as server:
    print("at", server.url)
    for line in post(server.url + "/v1/completions", prompt="In the beginning", max_tokens=24, stream=True, seed=1):
        if line.startswith(b"data: {"):
            print(json.loads(line[6:])["choices"][0]["text"], end="", flush=True)
    print()
    schema = {"type": "object", "properties": {"warm": {"type": "boolean"}}, "required": ["warm"],
              "additionalProperties": False}
    (answer,) = post(server.url + "/v1/completions", prompt="Is it warm?", max_tokens=64, seed=1,
                     structured_outputs={"json": schema})
    found = json.loads(json.loads(answer)["choices"][0]["text"])  # always of that form
    print("held to a schema:", found)
    assert isinstance(found["warm"], bool)
    with urllib.request.urlopen(server.url + "/metrics") as figures:
        print(next(line for line in figures.read().decode().splitlines() if line.startswith("morpho_generated")))
