"""Post-processor of a `tokenizer.json` that Morpho runs itself: a template that has the text once."""

from __future__ import annotations

from typing import Any

from morpho.weights.text.bpe import BytePairs

TEXT = {"Sequence": {"id": "A", "type_id": 0}}  # where the text stands in a template


def around_of(post: Any) -> dict[str, list[int]] | None:
    """The numbers that a post-processor puts before and after a text; None if it does something else, or is one that
    the tokenizers library refuses."""
    if post is None or is_byte_level(post, regex=False):
        return {"before": [], "after": []}
    single, known = post.get("single"), post.get("special_tokens")
    if post.get("type") != "TemplateProcessing" or not _are_pieces(single) or not _are_pieces(post.get("pair")) \
            or single.count(TEXT) != 1 or not _are_special(known):
        return None
    place = single.index(TEXT)
    try:
        before, after = ([number for piece in part for number in known[piece["SpecialToken"]["id"]]["ids"]]
                         for part in (single[:place], single[place + 1:]))
    except KeyError:
        return None
    return {"before": before, "after": after} if all(
        type(number) is int and 0 <= number < 1 << 31 for number in before + after) else None


def _are_pieces(pieces: Any) -> bool:
    if not isinstance(pieces, list) or not all(isinstance(piece, dict) and len(piece) == 1 for piece in pieces):
        return False
    for kind, held in (row for piece in pieces for row in piece.items()):
        if not isinstance(held, dict) or type(held.get("type_id")) is not int or held["type_id"] < 0:
            return False
        if kind not in ("Sequence", "SpecialToken") or not isinstance(held.get("id"), str):
            return False
        if kind == "Sequence" and held["id"] not in ("A", "B"):
            return False
    return True


def _are_special(known: Any) -> bool:
    return isinstance(known, dict) and all(
        isinstance(row, dict) and row.get("id") == name and isinstance(row.get("ids"), list)
        and isinstance(row.get("tokens"), list) and len(row["ids"]) == len(row["tokens"])
        and all(isinstance(text, str) for text in row["tokens"]) for name, row in known.items())


def is_byte_level(found: Any, regex: bool) -> bool:
    """Whether a part is ByteLevel; with `regex` one that splits words and adds no blank."""
    if not isinstance(found, dict) or found.get("type") != "ByteLevel":
        return False
    if "add_prefix_space" not in found or "trim_offsets" not in found:
        return False  # the library refuses it
    return not regex or (found["add_prefix_space"] is False and found.get("use_regex", True) is True)


def template_of(tokenizer: BytePairs) -> dict[str, Any] | None:
    """The post-processor that puts the tokenizer's tokens around a text."""
    if not tokenizer.before and not tokenizer.after:
        return None
    names = tokenizer._text_of_number
    pieces = [[{"SpecialToken": {"id": names[number], "type_id": 0}} for number in part]
              for part in (tokenizer.before, tokenizer.after)]
    single = [*pieces[0], TEXT, *pieces[1]]
    special = {names[number]: {"id": names[number], "ids": [number], "tokens": [names[number]]}
               for number in (*tokenizer.before, *tokenizer.after)}
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": special}
