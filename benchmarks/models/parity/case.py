"""A case, and the sizes that cases share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    name: str
    kind: str
    architecture: str
    settings: dict[str, Any]
    changes: dict[str, Any] = field(default_factory=dict)
    attention: str = "eager"  # the library's; Falcon's slopes are added twice by "eager"

    @property
    def family(self) -> str:
        return self.name.split(":")[0]


SMALL = {"vocab_size": 61, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 3, "num_attention_heads": 6,
         "num_key_value_heads": 2, "max_position_embeddings": 48, "eos_token_id": 0, "bos_token_id": 1,
         "pad_token_id": 2}
PLAIN = {name: value for name, value in SMALL.items() if name != "num_key_value_heads"}
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0, "original_max_position_embeddings": 12}
DYNAMIC = {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 1000.0}
FULL, SLIDING = "full_attention", "sliding_attention"


def rope(**parts: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10000.0, **parts}
