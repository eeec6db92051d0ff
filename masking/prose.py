"""In which languages a text holds free prose, in which a name could stand.

Coarse on purpose, and on the side of calling it prose: what is called none leaves without a look for names.
"""

from __future__ import annotations

import re

from weighbridge.masking.folding import fold_text

_HANGUL_WORD = re.compile("[가-힣]{1,40}+")
_SPEAKS = re.compile(
    "(?:니다|니까|어요|아요|예요|이에요|세요|네요|지요|는데|에게|에서|께서|한테|이라|이고|이며|님|씨|군|양|[은는을를와과께])$"
)
"""Ends of a single word that make it a sentence, part of one, or an address to somebody."""
_LONG_WORD = 7
_LATIN_RUN = re.compile(
    "[A-Za-z\u00c0-\u024f\u1e00-\u1eff][A-Za-z\u00c0-\u024f\u1e00-\u1eff'’.-]{0,40}+"
    "(?:,?[ \t]{1,3}(?:\r?\n)?[ \t]{0,8}|,?\r?\n[ \t]{0,8})?+"
)
_CODE = frozenset(
    """
    abstract and array as assert async await begin bool boolean break by byte case catch char class const
    create continue def default del delete desc do double elif else end enum except export extends false
    final finally float for foreach from func function global group if implements import in include insert
    instanceof int integer interface into is join key lambda let limit local long main match mod module mut
    namespace new nil none not null object on or order output package pass primary print private protected
    public raise ref repeat require return select self set short signed sizeof static str string struct
    super switch table template text then this throw throws true try type typedef undefined union unique
    unsigned until update use using value values var varchar virtual void where while with yield
    """.split()  # noqa: SIM905
)
"""Words of programming languages: two of them in a row are no sentence."""
_FEW = 4
_LONGEST_TITLE = 4
"""Letters of a word that a dot shortens (`Mr.`, `Prof.`) rather than ends a sentence behind."""


def languages_of(text: str) -> frozenset[str]:
    """`ko`, `en`, both or neither. Linear in the length of the text."""
    folded = fold_text(text)
    found = set()
    if not folded.isascii() and _korean(folded):
        found.add("ko")
    if _english(folded):
        found.add("en")
    return frozenset(found)


def _korean(text: str) -> bool:
    """Two words with Hangul, or one that is a sentence."""
    words = _HANGUL_WORD.finditer(text)
    first = next(words, None)
    if first is None:
        return False
    second = next(words, None)
    if second is not None and len(first.group()) + len(second.group()) > 2:
        return True
    if second is not None:
        # Two single syllables, such as units; a third word makes it more.
        return next(words, None) is not None
    word = first.group()
    return len(word) >= _LONG_WORD or (len(word) >= 3 and _SPEAKS.search(word) is not None)


def _english(text: str) -> bool:
    """Two words in a row that are no words of code, or a longer row of any."""
    plain = row = end = 0
    for hit in _LATIN_RUN.finditer(text):
        written = hit.group().rstrip()
        word = written.rstrip(",.'’-")
        # Behind a dot, an underscore or a digit it is part of a name; so it is before one or before a bracket.
        glued = hit.start() > 0 and not (
            text[hit.start() - 1].isspace() or text[hit.start() - 1] in "\"'“‘(>*-"
        )
        following = text[hit.end() : hit.end() + 1]
        joined = written == hit.group() and following in _OF_CODE and following != ""
        apart = hit.start() != end
        if apart or glued:
            plain = row = 0
        if (glued and hit.start() != end) or joined or "." in word:
            plain = row = 0
            end = hit.end()
            continue
        end = hit.end()
        row += 1
        initial = len(word) == 1 and word.isupper() and written.endswith(".")
        if initial or (word.lower() not in _CODE and len(word) > 1):
            plain += 1
        if plain >= 2 or (row >= _FEW and plain):
            return True
        if written.endswith(".") and len(word) > _LONGEST_TITLE:
            plain = row = 0
    return False


_OF_CODE = "_([{=<>/\\@#$%&|~^`:;0123456789"
