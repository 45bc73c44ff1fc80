"""How a text falls into words before byte pairs are merged: the patterns of GPT-2, Qwen2 and Llama 3, in the standard
library's `re`.

The patterns ask for letters (Unicode's categories L*), numbers (N*) and white space, which `re` has no names for. Its
`\\w` is L* and N* and the underscore, its `\\d` is Nd, and its `\\s` takes four control characters too many; so numbers
other than decimal digits are a table here (of Unicode 18), and letters are what is left of `\\w`.

>>> from morpho.weights.text.pretokenise import words
>>> words("We've  12 apples!")
['We', "'ve", ' ', ' 12', ' apples', '!']
>>> words("in 1234", split_digits=True)
['in', ' ', '1', '2', '3', '4']
>>> words("in 1234!\\n", pattern="llama-bpe")
['in', ' ', '123', '4', '!\\n']
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

# Categories No and Nl: superscripts, fractions, Roman numerals, numbers of many scripts.
_OTHER_NUMBERS = (
    r"\xb2\xb3\xb9\xbc-\xbe\u09f4-\u09f9\u0b72-\u0b77\u0bf0-\u0bf2\u0c78-\u0c7e\u0d58-\u0d5e\u0d70-\u0d78"
    r"\u0f2a-\u0f33\u1369-\u137c\u16ee-\u16f0\u17f0-\u17f9\u19da\u2070\u2074-\u2079\u2080-\u2089\u2150-\u2182"
    r"\u2185-\u2189\u2460-\u249b\u24ea-\u24ff\u2776-\u2793\u2cfd\u3007\u3021-\u3029\u3038-\u303a\u3192-\u3195"
    r"\u3220-\u3229\u3248-\u324f\u3251-\u325f\u3280-\u3289\u32b1-\u32bf\ua6e6-\ua6ef\ua830-\ua835"
    r"\U00010107-\U00010133\U00010140-\U00010178\U0001018a\U0001018b\U000102e1-\U000102fb\U00010320-\U00010323"
    r"\U00010341\U0001034a\U000103d1-\U000103d5\U00010858-\U0001085f\U00010879-\U0001087f\U000108a7-\U000108af"
    r"\U000108fb-\U000108ff\U00010916-\U0001091b\U000109bc\U000109bd\U000109c0-\U000109cf\U000109d2-\U000109ff"
    r"\U00010a40-\U00010a48\U00010a7d\U00010a7e\U00010a9d-\U00010a9f\U00010aeb-\U00010aef\U00010b58-\U00010b5f"
    r"\U00010b78-\U00010b7f\U00010ba9-\U00010baf\U00010cfa-\U00010cff\U00010e60-\U00010e7e\U00010f1d-\U00010f26"
    r"\U00010f51-\U00010f54\U00010fc5-\U00010fcb\U00011052-\U00011065\U000111e1-\U000111f4\U0001173a\U0001173b"
    r"\U000118ea-\U000118f2\U00011c5a-\U00011c6c\U00011fc0-\U00011fd4\U00012400-\U0001246f\U00012475-\U0001247f"
    r"\U00012550-\U00012686\U00016b5b-\U00016b61\U00016e80-\U00016e96\U00016ff4-\U00016ff6\U0001d2c0-\U0001d2d3"
    r"\U0001d2e0-\U0001d2f3\U0001d360-\U0001d378\U0001e8c7-\U0001e8cf\U0001ec71-\U0001ecab\U0001ecad-\U0001ecaf"
    r"\U0001ecb1-\U0001ecb4\U0001ed01-\U0001ed2d\U0001ed2f-\U0001ed3d\U0001f100-\U0001f10c"
)
_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_LETTER = rf"[^\W\d_{_OTHER_NUMBERS}]"
_NUMBER = rf"[\d{_OTHER_NUMBERS}]"
_MARK = rf"(?:[^\w{_SPACE}{_OTHER_NUMBERS}]|_)"  # neither letter, number nor space
_GPT2 = (rf"'s|'t|'re|'ve|'m|'ll|'d| ?{_LETTER}+| ?{_NUMBER}+| ?{_MARK}+"
         rf"|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+")
# Others take line breaks with the marks before them, one character of any kind with the letters after it, and numbers
# in groups.
_NEWER = (rf"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|(?:[^\w\r\n{_OTHER_NUMBERS}]|_)?{_LETTER}+|{_NUMBER}{{GROUP}}"
          rf"| ?{_MARK}+[\r\n]*|[{_SPACE}]*[\r\n]+|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+")
# The same in the words of the tokenizers library.
_PUBLISHED = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}GROUP| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+")
GROUPS = {"qwen2": "", "llama-bpe": "{1,3}"}
_LINE_END = re.compile(rf"\n(?=[^{_SPACE}])")
_BEGINNING = re.compile(rf"[^{_SPACE}]\n")  # of white space, with a line break
_IS_SPACE = re.compile(f"[{_SPACE}]")


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(_NEWER.replace("{GROUP}", GROUPS[name]) if name in GROUPS else _GPT2)


@cache
def _single_number() -> re.Pattern[str]:
    return re.compile(rf"({_NUMBER})")


def published_pattern(name: str) -> str:
    """The pattern as `tokenizer.json` writes it, for those that are not GPT-2's."""
    return _PUBLISHED.replace("GROUP", GROUPS[name])


def words(text: str, split_digits: bool = False, pattern: str = "gpt-2") -> list[str]:
    """The words of a text, which together are the text; with `split_digits` every number's character is one word."""
    found = _pattern(pattern)
    if not split_digits:
        return found.findall(text)
    return [word for piece in _single_number().split(text) for word in found.findall(piece)]


def pieces(text: str, characters: int = 1 << 20, pattern: str = "gpt-2") -> Iterator[str]:
    """A long text in parts with the same words: each begins where white space does, at a line break; where words end
    with line breaks, each begins after one.

    >>> from morpho.weights.text.pretokenise import pieces
    >>> list(pieces("one two\\nthree\\nfour", 10))
    ['one two', '\\nthree', '\\nfour']
    """
    if pattern in GROUPS:
        yield from _after_lines(text, characters)
        return
    start = 0
    while len(text) - start > characters:
        cut = text.rfind("\n", start + 1, start + characters)
        while cut > start and _IS_SPACE.match(text, cut - 1):
            cut -= 1
        if cut <= start:  # a very long line, or nothing but space: as much as there is up to the next beginning
            cut = next((found.start() + 1 for found in _BEGINNING.finditer(text, start + characters)), len(text))
        yield text[start:cut]
        start = cut
    if start < len(text):
        yield text[start:]


def _after_lines(text: str, characters: int) -> Iterator[str]:
    start = 0
    for found in _LINE_END.finditer(text):
        if found.end() - start >= characters:
            yield text[start:found.end()]
            start = found.end()
    if start < len(text):
        yield text[start:]


def byte_characters() -> list[str]:
    """A printable character for each of the 256 bytes, as byte-level vocabularies write them: 32 is `Ġ`.

    >>> from morpho.weights.text.pretokenise import byte_characters
    >>> byte_characters()[65], byte_characters()[32]
    ('A', 'Ġ')
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
