"""Text from outside, such as names of classes, made safe to print on a terminal."""

import unicodedata

# Control characters, halves of character pairs, line and paragraph separators.
HIDDEN = {"Cc", "Cs", "Zl", "Zp"}
# Characters that change the direction of the text after them.
TURNING = {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}


def plain(text: str) -> str:
    r"""Replaces control characters by their visible form; all other characters stay.

    >>> plain("caf\u00e9 \x1b[31m red\n")
    'café \\x1b[31m red\\n'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(character) for character in text)


def composed(text: str) -> str:
    r"""The one form of a text whose accents may be letters' own or signs beside them (NFC).

    >>> composed("o\u0308") == "\u00f6"
    True
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _visible(character: str) -> str:
    if unicodedata.category(character) in HIDDEN or character in TURNING:
        return character.encode("unicode_escape").decode()
    return character
