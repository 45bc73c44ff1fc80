"""expects: cold
remedy: a cache folder that is kept; a warm-up

Lets the model that ships with Morpho begin three verses, for the title page of a talk.
"""

import morpho as mo

PROMPTS = ["In the beginning", "The king said", "Come, gentle night"]
TOKENS = 14


def verses(model, tokenizer) -> list[str]:
    """A few tokens after each prompt, drawn with a seed of its own."""
    made = []
    for seed, prompt in enumerate(PROMPTS):
        ids = tokenizer.encode(prompt)
        tokens = [*mo.models.generate(model, ids, max_new_tokens=TOKENS, temperature=0.8, top_k=40, seed=seed)]
        made.append(tokenizer.decode([*ids, *tokens]))
    return made


def likelihood(model, tokenizer, text: str) -> float:
    """Mean log likelihood of a text's tokens."""
    ids = mo.asarray(tokenizer.encode(text))
    logits = model(ids[None, :-1])[0]
    picked = mo.take_along_axis(mo.log_softmax(logits, axis=-1), ids[1:, None], axis=-1)
    return picked.mean().item()


def main() -> None:
    model, tokenizer = mo.models.load_with_tokenizer(mo.models.SHIPPED)
    made = verses(model, tokenizer)
    for text in made:
        print("-", " ".join(text.split()))
    print(f"likelihood of the first: {likelihood(model, tokenizer, made[0]):.2f} per token")


if __name__ == "__main__":
    main()
