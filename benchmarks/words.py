"""Every character of Unicode, in company: Morpho's words beside those of the tokenizers library.

`python -m benchmarks.words` takes a minute. Characters that this Python's Unicode tables do not know are counted apart.
"""

from __future__ import annotations

import unicodedata

from morpho.weights.text.pretokenise import byte_characters, words


def main() -> None:
    """Print how many characters make a difference, with and without single digits; none should that Python knows."""
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    level = ByteLevel(add_prefix_space=False)
    byte_of = {character: byte for byte, character in enumerate(byte_characters())}
    for split_digits, library in ((False, level), (True, Sequence([Digits(individual_digits=True), level]))):
        known, unknown = [], 0
        for code in range(0x110000):
            if 0xD800 <= code < 0xE000:
                continue
            character = chr(code)
            text = f"a{character}{character}1{character} !{character}  {character}'s"
            found = [bytes(byte_of[c] for c in word).decode() for word, _ in library.pre_tokenize_str(text)]
            if words(text, split_digits) != found:
                if unicodedata.category(character) == "Cn":
                    unknown += 1
                else:
                    known.append(hex(code))
        print(f"single digits {split_digits}: {len(known)} characters differ {known[:10]}, and {unknown} that Unicode "
              f"{unicodedata.unidata_version} does not know")


if __name__ == "__main__":
    main()
