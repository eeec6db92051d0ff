"""What a policy says about leaving: which requests may, and what in their text keeps them in."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Annotated, Final, Literal

import regex
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from weighbridge.config.entity_types import EntityType
from weighbridge.config.problems import wrong_all
from weighbridge.policies.strict import Strict

MAX_WORDS = 50_000
MAX_PATTERNS = 200
MAX_PEOPLE = 100_000
MAX_CHARS = 100_000_000

WORDS: Final = ("대외비", "사외비")
PATTERNS: Final = (
    r"\b(?-i:CONFIDENTIAL|TOP SECRET|INTERNAL(?: USE)? ONLY|COMPANY PRIVATE|DO NOT DISTRIBUTE)\b",
    r"(?mi)(?:^|\[)[^\w\n]{0,20}(?:(?:strictly|highly|company) )?"
    r"(?:confidential|top secret|internal(?: use)? only|do not distribute)[^\w\n]{0,20}(?:\]|$)",
    r"(?i)\b(?:classification|sensitivity|security level|distribution) ?[:=] ?(?:(?:strictly|highly|company) )?"
    r"(?:confidential|restricted|secret|top secret|internal(?: use)? only)\b",
    r"(?m)(?:^|[\[<【〔《「])[^\w\n]{0,20}(?:비공개|극비|기밀|사내 ?한정?|사내 ?전용|[123]급 ?비밀|"
    r"(?:외부|사외|대외) ?(?:유출|반출|공개) ?금지)[^\w\n]{0,20}(?:[\]>】〕》」]|$)",
    r"(?:등급|공개 ?(?:여부|범위)|배포 ?범위) ?[:=] ?(?:비공개|극비|기밀|사내|[123]급 ?비밀)",
)
"""Document markings that ordinary prose does not hold: in capitals, alone on a line, in brackets, or as a label."""


def _word(word: str) -> str:
    if not 2 <= len(word) <= 200 or word != word.strip() or not word.isprintable():
        raise ValueError("must be 2 to 200 characters on one line, without spaces at its ends")
    if sum(map(str.isalnum, unicodedata.normalize("NFKC", word))) < 2:
        raise ValueError("must hold two letters or digits at least: the others are passed over in a search")
    return word


def _pattern(text: str) -> str:
    if len(text) > 2000:
        raise ValueError("must be at most 2000 characters")
    try:
        made = regex.compile(text)
    except (regex.error, RecursionError, OverflowError) as exc:
        at = getattr(exc, "pos", None)
        raise ValueError(
            "is no regular expression" + (f" (at character {at + 1})" if isinstance(at, int) else "")
        ) from None
    if made.fullmatch("") is not None:
        raise ValueError("matches the empty text, so it would keep every request in")
    return text


Word = Annotated[str, AfterValidator(_word)]
Pattern = Annotated[str, AfterValidator(_pattern)]
ClassName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,31}$")]

CLASS_LEGAL = "text of 1 to 32 small letters, digits and . _ -"


class Blocked(Strict):
    """Terms and markings that keep a request in."""

    words: list[Word] = Field(
        default=list(WORDS),
        max_length=MAX_WORDS,
        description="Terms that keep a request in wherever they stand in its text.",
        json_schema_extra={"legal": f"a list of at most {MAX_WORDS} terms, each of 2 to 200 characters"},
    )
    patterns: list[Pattern] = Field(
        default=list(PATTERNS),
        max_length=MAX_PATTERNS,
        description="Regular expressions that do the same. The shipped ones find document markings.",
        json_schema_extra={
            "legal": f"a list of at most {MAX_PATTERNS} regular expressions, each of at most 2000 characters",
            "default": "document markings, see below",
        },
    )
    time_limit_ms: int = Field(
        default=1000,
        ge=1,
        le=10_000,
        description="How long the search of one request may take, in milliseconds; after that it counts as found.",
    )


class DataClasses(Strict):
    """Which classes of data there are, and which of them may leave."""

    order: list[ClassName] = Field(
        default=["public", "internal", "confidential", "restricted"],
        min_length=1,
        max_length=20,
        description="The classes, the least strict first.",
        json_schema_extra={"legal": f"a list of different names, each {CLASS_LEGAL}"},
    )
    default: ClassName = Field(
        default="internal",
        description="Class of a request that names none, or one less strict.",
        json_schema_extra={"legal": "one of the names in order"},
    )
    may_leave: list[ClassName] = Field(
        default=["public", "internal"],
        max_length=20,
        description="The classes that may leave, the first ones of `order`. A class that is in neither list does not "
        "leave.",
        json_schema_extra={"legal": "the first names of order, or an empty list"},
    )

    @model_validator(mode="after")
    def _in_order(self) -> DataClasses:
        twice = [f"order.{n}" for n, name in enumerate(self.order) if name in self.order[:n]]
        found = [(field, "this name is given twice") for field in twice]
        if self.default not in self.order:
            found.append(("default", "must be one of the names in order"))
        for n, name in enumerate(self.may_leave):
            if n >= len(self.order) or name != self.order[n]:
                # Else a header could name the stricter class and open what was closed.
                found.append(
                    (f"may_leave.{n}", "must be the first names of order, in that order and without a gap")
                )
                break
        if found:
            raise wrong_all(found)
        return self


class Outward(Strict):
    """What keeps a request in that the roads would let out."""

    on_refusal: Literal["local", "reject"] = Field(
        default="local",
        description="What becomes of a request that may not leave as it stands: `local`, a local tier may still serve "
        "it in the time it has; `reject`, it is answered 403 at once.",
    )
    free_text: Literal["mask", "refuse"] = Field(
        default="mask", description="Prose: `mask`, it may leave masked; `refuse`, it does not leave."
    )
    refuse: list[EntityType] = Field(
        default=["RRN", "FRN"],
        description="Kinds of value that are refused instead of masked.",
        json_schema_extra={
            "legal": "a list of different kinds of value, such as RRN, FRN, PASSPORT, CARD, HEALTH"
        },
    )
    max_people: int = Field(
        default=20,
        ge=0,
        le=MAX_PEOPLE,
        description="How many different people's data one request may take out, masked.",
    )
    max_chars: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CHARS,
        description="Characters of text in a request that may leave; `masking.max_chars` holds beside it.",
    )
    blocked: Blocked = Field(
        default_factory=Blocked, description="Terms and document markings that keep a request in."
    )
    data_classes: DataClasses = Field(
        default_factory=DataClasses, description="Classes of data, and which of them may leave."
    )

    @model_validator(mode="after")
    def _no_kind_twice(self) -> Outward:
        twice = [f"refuse.{n}" for n, kind in enumerate(self.refuse) if kind in self.refuse[:n]]
        if twice:
            raise wrong_all([(field, "this kind is given twice") for field in twice])
        return self


class Stricter(Strict):
    """What is stricter for one tenant or one key. Neither can open what the policy closes."""

    egress: Literal["never"] | None = Field(
        default=None,
        description="`never`: nothing of this tenant or key leaves.",
        json_schema_extra={"legal": "never, or left out (a tenant or key may only be stricter)"},
    )
    free_text: Literal["refuse"] | None = Field(
        default=None,
        description="`refuse`: prose of this tenant or key does not leave.",
        json_schema_extra={"legal": "refuse, or left out (a tenant or key may only be stricter)"},
    )
    max_people: int | None = Field(
        default=None,
        ge=0,
        le=MAX_PEOPLE,
        description="Fewer people; the smallest number counts.",
    )
    data_class: ClassName | None = Field(
        default=None,
        description="Class of requests that name none, or one less strict; the strictest counts.",
        json_schema_extra={"legal": "one of the names in outward.data_classes.order"},
    )

    def laxer_than(self, outward: Outward) -> Iterator[tuple[tuple[str, ...], str]]:
        """Where the rule is laxer than the policy, as path and sentence."""
        if self.max_people is not None and self.max_people > outward.max_people:
            yield (
                ("max_people",),
                f"must not be above the policy's own {outward.max_people}: a tenant or key may only be stricter",
            )
        classes = outward.data_classes
        if self.data_class is None:
            return
        if self.data_class not in classes.order:
            yield ("data_class",), "must be one of the names in outward.data_classes.order"
        elif classes.order.index(self.data_class) < classes.order.index(classes.default):
            yield (
                ("data_class",),
                f"must not be laxer than the policy's own {classes.default}: a tenant or key may only be stricter",
            )
