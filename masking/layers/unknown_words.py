"""Capitalised words that no dictionary of English holds: names, towns and firms that a model has not seen either.

The dictionary is the one that spaCy's English models carry for their lemmas: WordNet's words and the irregular forms.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import regex

from weighbridge.masking.entities import Span
from weighbridge.masking.layers.base import LayerMissing
from weighbridge.masking.layers.en_words import (
    COMMON,
    GIVEN,
    KOREAN_SURNAMES,
    SURNAMES,
    SYLLABLE,
    TECH,
    TITLES,
    WORDS_TOO,
    words,
)

# Beside these signs stand names of programs, files and fields.
_CAPITALISED = regex.compile(
    r"(?<![\p{L}\d_./\\@#$<&=+'’-])\p{Lu}[\p{L}'’]{1,40}(?:-\p{L}{1,40}){0,3}(?![\p{L}\d_(/\\@=<])(?!\.\p{L})"
)
_HUMP = regex.compile(r"\p{Ll}\p{Lu}")
_NAME_HUMP = regex.compile(r"(?:Ma?c|Fitz|De|Di|Du|Le|La|Van|Von|O['’]|D['’]|L['’])\p{Lu}\p{Ll}+")
_LONGEST_ACRONYM = 5
_PREFIXES = (
    "un",
    "re",
    "non",
    "pre",
    "over",
    "sub",
    "super",
    "multi",
    "inter",
    "anti",
    "micro",
    "auto",
    "co",
    "dis",
    "out",
    "up",
)
_SUFFIXES = (
    ("ies", "y"),
    ("es", ""),
    ("s", ""),
    ("ied", "y"),
    ("ed", ""),
    ("ed", "e"),
    ("ing", ""),
    ("ing", "e"),
    ("er", ""),
    ("er", "e"),
    ("est", ""),
    ("est", "e"),
    ("ly", ""),
    ("ness", ""),
    ("able", ""),
    ("less", ""),
    ("ful", ""),
    ("isation", "ization"),
    ("ise", "ize"),
    ("ised", "ize"),
    ("ising", "ize"),
    ("our", "or"),
)
# Words of every letter, not in the dictionary though everybody writes them.
_MORE = words(
    "faq faqs asap eta todo todos repo repos config configs admin admins login logins signup email emails"
    " website websites"
    " online offline wifi smartphone app apps api apis url urls blog podcast selfie covid vegan eco tldr lol"
    " omg btw fyi"
    " backend frontend dataset datasets workflow workflows codebase timestamp username usernames chatbot"
    " chatbots inbox"
    " spreadsheet metadata webhook webhooks plugin plugins dropdown tooltip runtime middleware serverless"
    " microservice"
    " microservices cryptocurrency blockchain startup startups smartwatch screenshot screenshots emoji emojis"
    " hashtag"
    " unsubscribe checkbox hyperlink namespace stakeholder stakeholders onboarding roadmap rollout takeaway"
    " freelancer"
    " brexit netflix instagram youtube uber kubernetes ebook ebooks influencer crowdfunding deliverables"
    " deliverable"
    " everytime anytime alright gonna wanna gotta yeah hmm haha wow hooray thx pls please okay bullet formatted"
    " upstream"
    " tokens tokenizer prompt prompts embedding embeddings hyperparameter hyperparameters overfitting pytest"
)


class Dictionary:
    """Words of English, in small letters.

    Args:
        model: folder of a spaCy English model.

    Raises:
        LayerMissing: the model has no readable word list.
    """

    def __init__(self, model: Path) -> None:
        try:
            tables = msgspec.msgpack.decode((model / "lemmatizer" / "lookups" / "lookups.bin").read_bytes())
            held = {word for table in tables["lemma_index"].values() for word in table}
            held.update(word for table in tables["lemma_exc"].values() for word in table)
        except (OSError, msgspec.DecodeError, KeyError, AttributeError, TypeError) as exc:
            raise LayerMissing(
                f"the word list of the model in {model} cannot be read ({type(exc).__name__})"
            ) from None
        # WordNet holds some people and many given names as nouns.
        self._words = frozenset(held | COMMON | TECH | _MORE | set(TITLES)) - (GIVEN - WORDS_TOO)

    def holds(self, word: str) -> bool:
        """Whether a word, or what it is derived from, is in the dictionary."""
        bare = word.lower().replace("’", "'")
        bare = bare.removesuffix("'s").removesuffix("'")
        return any(self._simple(part) for part in (bare, bare.replace("'", ""))) or (
            "-" in bare and all(map(self._simple, bare.split("-")))
        )

    def _simple(self, word: str) -> bool:
        known = self._words
        if word in known:
            return True
        for suffix, instead in _SUFFIXES:
            if word.endswith(suffix) and len(word) > len(suffix) + 2:
                stem = word[: -len(suffix)] + instead
                if stem in known or (len(stem) > 3 and stem[-1] == stem[-2] and stem[:-1] in known):
                    return True
        for prefix in _PREFIXES:
            if word.startswith(prefix) and len(word) > len(prefix) + 3 and word[len(prefix) :] in known:
                return True
        return False

    def unknown(self, text: str) -> list[Span]:
        """Capitalised words that are none of ours, as NAME."""
        return [(*hit.span(), "NAME") for hit in _CAPITALISED.finditer(text) if self._telling(hit.group())]

    def _telling(self, word: str) -> bool:
        if _HUMP.search(word) and not _NAME_HUMP.fullmatch(word):
            return False
        if word.isupper() and len(word) <= _LONGEST_ACRONYM and word.isascii():
            return False
        return not self.holds(word)

    def small_names(self, text: str) -> list[Span]:
        """People in lines written small throughout: given names, and a lone letter between two names."""
        spans: list[Span] = [
            (*hit.span(), "PERSON") for hit in _SMALL_KOREAN.finditer(text) if not self.holds(hit[1])
        ]
        for line in _LINE.finditer(text):
            if not line.group().islower():
                continue
            for word in _SMALL.finditer(text, *line.span()):
                if (word.group() in GIVEN and word.group() not in WORDS_TOO) or not word.group().isascii():
                    spans.append((*word.span(), "PERSON"))
            for hit in _SMALL_INITIAL.finditer(text, *line.span()):
                if not {hit[1], hit[2]} & COMMON and not (self._plain(hit[1]) and self._plain(hit[2])):
                    spans.append((*hit.span(), "PERSON"))
        return spans

    def _plain(self, word: str) -> bool:
        return word not in GIVEN and word not in SURNAMES and self.holds(word)

    def recased(self, text: str) -> str:
        """`text` with names capitalised as the model is used to it, in lines written small or large throughout.

        As long as `text`: places stay.
        """
        recased: str = _LINE.sub(self._recase, text)
        return recased

    def _recase(self, line: regex.Match[str]) -> str:
        written: str = line.group()
        if written.isupper():
            # Short words are acronyms as often as not.
            return str(_LARGE.sub(lambda word: word.group()[0] + _small(word.group()[1:]), written))
        if written.islower():
            return str(_SMALL.sub(self._capitalise, written))
        return written

    def _capitalise(self, found: regex.Match[str]) -> str:
        word: str = found.group()
        named = word in GIVEN or word in SURNAMES or not self.holds(word)
        large = word[0].upper()
        return large + word[1:] if named and len(large) == 1 and word not in COMMON else word


def _small(letters: str) -> str:
    small = letters.lower()
    return small if len(small) == len(letters) else letters


_LINE = regex.compile(r"[^\r\n]+")
_SMALL_KOREAN = regex.compile(
    rf"(?<![\p{{L}}\d])(?:{'|'.join(map(str.lower, KOREAN_SURNAMES))}) ({SYLLABLE}{SYLLABLE})(?![\p{{L}}\d])"
)
_SMALL_INITIAL = regex.compile(
    r"(?<![\p{L}\d])(\p{Ll}{2,20}) [b-hj-z]\.? (\p{Ll}{2,20}(?:-\p{Ll}{2,20})?)(?![\p{L}\d])"
)
_LARGE = regex.compile(r"(?<![\p{L}\d_])\p{Lu}{3,40}(?![\p{L}\d_])")
_SMALL = regex.compile(r"(?<![\p{L}\d_./@#$=-])\p{Ll}[\p{Ll}'’]{2,40}(?![\p{L}\d_/@=(])(?!\.\p{L})")
