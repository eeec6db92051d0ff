"""Values under telling keys: JSON, YAML, XML, settings, and the columns of a table."""

from __future__ import annotations

import regex

from weighbridge.masking.entities import Span

_PERSON = (
    r"(?:first|last|full|given|family|middle|maiden|nick|display|legal|preferred|birth|sur|fore|real|account"
    r"|card|customer|client"
    r"|patient|employee|staff|student|user|contact|owner|author|sender|recipient|receiver|manager|spouse"
    r"|guardian|guest|passenger"
    r"|holder|cardholder|beneficiary|applicant|candidate|member|tenant|parent|child|mother'?s?|father'?s?"
    r"|person|buyer|seller|host"
    r"|doctor|physician|nurse|teacher|agent|driver|lead|billing|shipping|emergency[ _-]?contact)[ _-]?names?"
    r"|name[ _-]?(?:first|last|full)|surnames?|forenames?|f[ _-]?name|l[ _-]?name"
)
_ROLE = (
    r"names?|user|author|owner|customer|client|patient|employee|contact|recipient|sender|assignee|reporter"
    r"|manager|guardian|spouse"
    r"|attendees?|participants?|passengers?|guests?|members?|beneficiar(?:y|ies)|applicant|candidate|tenant"
    r"|doctor|physician"
    r"|nurse|teacher|supervisor|requester|approver|reviewer|signatory|signature|cardholder|card_holder|created["
    r" _-]by"
    r"|updated[ _-]by|assigned[ _-]to|reported[ _-]by|people|person|who|alias(?:es)?"
)
_OTHERS: tuple[tuple[str, str], ...] = (
    (
        "ADDRESS",
        r"(?:(?:street|home|mailing|postal|billing|shipping|delivery|work|office|permanent|residential|physical"
        r"|current)[ _-]?)?"
        r"(?:address(?:[ _-]?(?:line)?[ _-]?\d)?|addr)|street(?:[ _-]?(?:line)?[ _-]?\d)?|zip(?:[ _-]?code)?"
        r"|post(?:al)?[ _-]?code|apartment|residence",
    ),
    (
        "PLACE",
        r"(?:birth|home)?[ _-]?(?:city|town|village)|place[ _-]of[ _-]birth|birth[ _-]?place|province|county"
        r"|country|hometown|nationality|citizenship",
    ),
    (
        "ORG",
        r"employer|company(?:[ _-]?name)?|organi[sz]ation(?:[ _-]?name)?|workplace|school|university|hospital",
    ),
    ("DATE", r"dob|d[ _-]o[ _-]b|date[ _-]?of[ _-]?birth|birth[ _-]?(?:date|day)|born"),
    ("PHONE", r"(?:[a-z]{1,12}[ _-]?)?(?:phone|mobile|cell|fax|telephone|tel)(?:[ _-]?(?:number|no))?"),
    (
        "ID",
        r"(?:ssn|sin|nino|tin|ein|passport|driver'?s?[ _-]?licen[sc]e|licen[sc]e[ _-]?plate|national[ _-]?id"
        r"|tax[ _-]?id|mrn|member[ _-]?id"
        r"|customer[ _-]?id|employee[ _-]?id|patient[ _-]?id|student[ _-]?id|policy|account|routing|iban|card"
        r"|imei|vin)(?:[ _-]?(?:number|no|num|id))?",
    ),
    ("NUM", r"age|cvv|cvc|pin|expiry"),
)
_KEYS = [("PERSON", _PERSON), ("NAME", _ROLE), *_OTHERS]
_ANY = "|".join(f"(?P<k{number}>{rule})" for number, (_, rule) in enumerate(_KEYS))
_STRING = r"\"(?P<d>(?:[^\"\\\r\n]|\\.){1,200})\"|'(?P<s>[^'\r\n]{1,200})'"
_QUOTED_KEY = regex.compile(
    rf"(?i)(?:[\"']|(?<![\p{{L}}\d])(?=[\p{{L}}\d _-]{{1,40}}=\s?[\"']))(?:{_ANY})[\"']?\s{{0,4}}(?::|=>|="
    rf")\s{{0,4}}(?:{_STRING}|(?P<n>\d[\d.-]{{0,20}})|(?P<l>\[))"
)
_ITEM = regex.compile(rf"\s{{0,40}},?\s{{0,40}}(?:{_STRING})")
_TAG = regex.compile(rf"(?i)<(?:{_ANY})(?: [^<>\n]{{0,80}})?>(?P<s>[^<>]{{1,200}})</")
_LINE_KEY = regex.compile(
    rf"(?im)^[^\S\r\n]{{0,16}}(?:[-*] )?(?:\*\*)?(?:{_ANY})(?:\*\*)?[^\S\r\n]?[:=](?:\*\*)?[^\S\r\n]{{0,8}}("
    rf"?P<s>[^\s\r\n{{\[][^\r\n]{{0,120}})$"
)
_HEADER = regex.compile(rf"(?i)\W*(?:{_ANY})\W*")
_IDENTIFIER = regex.compile(
    r"[a-z0-9]+|.*[_/\\(){}=<>].*|[a-z]+(?:[A-Z][a-z]*)+|.*\d.*|[A-Za-z0-9]+(?:-[a-z0-9]+)+|.*\.[a-z]{1,5}",
    regex.DOTALL,
)
_MOST_ITEMS, _LONGEST_ROW, _MOST_COLUMNS = 100, 2_000, 64


def fields(text: str) -> list[Span]:
    """Values under telling keys in a folded text."""
    spans: list[Span] = []
    for rule in (_QUOTED_KEY, _TAG, _LINE_KEY):
        for hit in rule.finditer(text):
            entity = _entity(hit)
            place = _value(hit)
            if place is None:
                spans.extend((*item, entity) for item in _items(text, hit.end(), entity))
            elif _tells(entity, text[slice(*place)]):
                spans.append((*place, entity))
    spans.extend(_columns(text))
    return spans


def _entity(hit: regex.Match[str]) -> str:
    return next(entity for number, (entity, _) in enumerate(_KEYS) if hit[f"k{number}"] is not None)


def _value(hit: regex.Match[str]) -> tuple[int, int] | None:
    for group in ("d", "s", "n"):
        if group in hit.re.groupindex and hit[group] is not None:
            start = hit.start(group)
            return start, start + len(hit[group].rstrip(" ,;\t"))
    return None


def _tells(entity: str, value: str) -> bool:
    """A bare `name` is as often that of a tool or a file."""
    if not value.strip():
        return False
    return entity != "NAME" or not _IDENTIFIER.fullmatch(value.strip())


def _items(text: str, start: int, entity: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for _ in range(_MOST_ITEMS):
        item = _ITEM.match(text, start)
        if item is None:
            break
        place = _value(item)
        if place is not None and _tells(entity, text[slice(*place)]):
            found.append(place)
        start = item.end()
    return found


def _columns(text: str) -> list[Span]:
    """Cells under telling heads: comma, semicolon, tab or bar separated."""
    spans: list[Span] = []
    kinds: list[str | None] = []
    sign = ""
    at = 0
    for line in text.splitlines(keepends=True):
        if len(line) > _LONGEST_ROW:
            kinds = []
        elif kinds and line.count(sign) == len(kinds) - 1 and line.strip():
            spans.extend(_cells(line, at, sign, kinds))
        else:
            sign, kinds = _heads(line)
        at += len(line)
    return spans


def _heads(line: str) -> tuple[str, list[str | None]]:
    for sign in "\t|;,":
        if not 1 <= line.count(sign) < _MOST_COLUMNS:
            continue
        kinds: list[str | None] = []
        words = 0
        for cell in line.split(sign):
            hit = _HEADER.fullmatch(cell.strip())
            kinds.append(None if hit is None else _entity(hit))
            words = max(words, len(cell.split()))
        if any(kinds) and words <= 3:
            return sign, kinds
    return "", []


def _cells(line: str, at: int, sign: str, kinds: list[str | None]) -> list[Span]:
    found: list[Span] = []
    start = at
    for cell, kind in zip(line.split(sign), kinds, strict=True):
        value = cell.strip(" \t\r\n\"'")
        if kind is not None and value.strip("-: "):
            first = start + cell.index(value)
            found.append((first, first + len(value), kind))
        start += len(cell) + 1
    return found
