"""Passwords, tokens and private keys: what never leaves, masked or not.

detect-secrets knows the tokens of many services; the rest is found by what they are labelled with. An automaton finds
the labels, so that text without any costs next to nothing.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from typing import Any

import ahocorasick

from weighbridge.masking.entities import CREDENTIAL, Span, merge
from weighbridge.masking.layers import secret_values as looks
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.layers.decoding import natural, random_looking
from weighbridge.masking.layers.secret_labels import (
    BEHIND_SLASH,
    FOLLOWS,
    JUXTAPOSED,
    KEY,
    KOREAN,
    KOREAN_BEHIND_SLASH,
    KOREAN_CODE,
    KOREAN_KEY,
    KOREAN_LOOSE,
    KOREAN_WORD_AND_SIGNS,
    LABELS,
    NAMED,
    NOT_THE_SECRET,
    PHRASE,
    SERVICES,
    WHOLE,
)
from weighbridge.masking.squeezed import lower

_AFTER = 480
"""Characters behind a label that its rules look at."""

_PLUGINS = {
    "artifactory": ("ArtifactoryDetector",),
    "aws": ("AWSKeyDetector",),
    "azure_storage_key": ("AzureStorageKeyDetector",),
    "cloudant": ("CloudantDetector",),
    "discord": ("DiscordBotTokenDetector",),
    "github_token": ("GitHubTokenDetector",),
    "gitlab_token": ("GitLabTokenDetector",),
    "ibm_cloud_iam": ("IbmCloudIamDetector",),
    "ibm_cos_hmac": ("IbmCosHmacDetector",),
    "jwt": ("JwtTokenDetector",),
    "mailchimp": ("MailchimpDetector",),
    "npm": ("NpmDetector",),
    "openai": ("OpenAIDetector",),
    "pypi_token": ("PypiTokenDetector",),
    "sendgrid": ("SendGridDetector",),
    "slack": ("SlackDetector",),
    "softlayer": ("SoftlayerDetector",),
    "square_oauth": ("SquareOAuthDetector",),
    "stripe": ("StripeDetector",),
    "telegram_token": ("TelegramBotTokenDetector",),
    "twilio": ("TwilioKeyDetector",),
}
# Some of these would find half a word: the token must hold digits, as all of the services' tokens do.
_LEAST_DIGITS = 2
_LONG = re.compile(r"[A-Za-z0-9_\-]{16,}+")
_REACH, _WINDOW, _OVERLAP = 128, 1024, 256

_KEY_BLOCK = re.compile(
    r"BEGIN[ _-]{0,3}(?:[A-Z0-9]{2,12}[ _-]{1,3}){0,3}PRIVATE[ _-]{0,3}KEY|PuTTY-User-Key-File-\d|AGE-SECRET-KEY-1",
    re.IGNORECASE,
)
_LOGIN_URL = re.compile(r"://(?P<user>[^\s/@:?#\"'<>]{0,128}):(?P<value>[^\s/@\"'<>]{3,256})@(?=[^\s@])")
_SCHEME = re.compile(
    r"(?:authorization|proxy-authorization)\\?[\"']?\s{0,2}[:=]\s{0,2}\\?[\"']?(?:(?:basic|bearer|token|apikey|digest|negotiate|"
    r"aws4-hmac-sha256)\s{1,3})?(?P<value>[A-Za-z0-9._~+/=\-]{8,2048})"
    r"|(?<![A-Za-z])(?:bearer|basic)\s{1,3}(?P<token>[A-Za-z0-9._~+/=\-]{8,2048})",
    re.IGNORECASE,
)
_COOKIE = re.compile(
    r"(?:session(?:[-_]?id)?|sess|sid|jsessionid|phpsessid|connect\.sid|csrf_?token|xsrf-token|remember_?(?:me|token))"
    r"=(?P<value>[A-Za-z0-9._~+/%\-]{12,1024})",
    re.IGNORECASE,
)
_HASHED = re.compile(
    r"\$(?:2[abxy]|1|5|6|y|argon2(?:id|i|d)|apr1|pbkdf2-sha\d{1,3})\$[^\s:$]{1,64}\$?[^\s:]{16,256}"
)


class Credentials:
    """The layer."""

    names: frozenset[str] = frozenset()
    decoded = True

    def __init__(self) -> None:
        # Its detectors are used on text alone: nothing here reads files or verifies keys at their service. Its logger
        # writes to the standard error, and it takes Python's warnings there as well.
        self._plugins = _plugins()
        logging.getLogger("detect-secrets").disabled = True
        logging.captureWarnings(False)
        self._labels = ahocorasick.Automaton()
        for label, kind in LABELS.items():
            self._labels.add_word(label, (len(label), kind))
        self._labels.make_automaton()
        self.version = f"credentials-{version('detect-secrets')}"

    def find(self, text: str) -> list[Span]:
        """Merged spans."""
        spans: list[Span] = []
        lowered = lower(text)
        done: dict[str, int] = {}
        for last, (length, kind) in self._labels.iter(lowered):
            start = last + 1 - length
            # Labels may stand in each other (`password` and `pass`), and a hostile text is full of them.
            if start < done.get(kind, 0) or (lowered[start : last + 1] in WHOLE and _inside(text, start)):
                continue
            for first, end in _BY_KIND[kind](text, start, last + 1):
                spans.append((first, end, CREDENTIAL))
                done[kind] = end
        spans.extend(self._tokens(text))
        return merge(spans)

    def _tokens(self, text: str) -> Iterator[Span]:
        """What detect-secrets finds in the parts of the text that hold long words with digits."""
        for first, last in _windows(text):
            piece = text[first:last]
            for plugin in self._plugins:
                for value in plugin.analyze_string(piece):
                    if sum(char.isdigit() for char in value) >= _LEAST_DIGITS:
                        at = piece.find(value)
                        yield first + at, first + at + len(value), CREDENTIAL


def _inside(text: str, start: int) -> bool:
    """Whether the word began before `start`; a capital behind a small letter begins one of its own."""
    if not start or not text[start - 1].isalpha():
        return False
    return not (text[start].isupper() and text[start - 1].islower())


def _plugins() -> list[Any]:
    return [
        getattr(import_module(f"detect_secrets.plugins.{module}"), name)()
        for module, names in _PLUGINS.items()
        for name in names
    ]


def _windows(text: str) -> Iterator[tuple[int, int]]:
    first = last = -1
    for word in _LONG.finditer(text):
        if not any(char.isdigit() for char in word.group()):
            continue
        begin, end = max(0, word.start() - _REACH), min(len(text), word.end() + _REACH)
        if begin <= last:
            last = end
        else:
            yield from _cut(first, last)
            first, last = begin, end
    yield from _cut(first, last)


def _cut(first: int, last: int) -> Iterator[tuple[int, int]]:
    """In pieces of a bounded length, since some of detect-secrets' patterns cost its square."""
    while last - first > _WINDOW:
        yield first, first + _WINDOW
        first += _WINDOW - _OVERLAP
    if first < last:
        yield first, last


def _key_block(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    hit = _KEY_BLOCK.match(text, start, end + 80)
    if hit:
        yield hit.span()


def _login(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    hit = _LOGIN_URL.match(text, start, end + _AFTER)
    if hit and not looks.referred(hit["value"]) and not looks.stock(hit["value"]):
        yield hit.span("value")


def _scheme(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    hit = _SCHEME.match(text, start, end + 2100)
    if hit is None:
        return
    group = "value" if hit["value"] else "token"
    value = hit[group].rstrip(".")
    login = text[start : start + 5].lower() == "basic" or "basic" in hit.group()[:40].lower()
    if (login and _is_login(value)) or (
        len(value) >= 12 and looks.strong(value) and not looks.referred(value)
    ):
        yield hit.start(group), hit.start(group) + len(value)


def _is_login(value: str) -> bool:
    """Whether `value` is base64 of `user:password`."""
    try:
        plain = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return False
    return ":" in plain and plain.isprintable()


def _cookie(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    hit = _COOKIE.match(text, start, end + 1100)
    if hit and looks.opaque(hit["value"]):
        yield hit.span("value")


def _hashed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    hit = _HASHED.match(text, start, end + 400)
    if hit:
        yield hit.span()


def _token(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """A token that begins as its service's tokens do."""
    if start and text[start - 1].isascii() and text[start - 1].isalnum():
        return
    for rule in SERVICES:
        hit = rule.match(text, start, end + 600)
        if hit and len({*hit.group()}) > 8 and any(map(str.isdigit, hit.group())):
            yield hit.span()
            return


def _strong(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """`password = "…"`, `DB_PASSWORD=…`, `the password is …`."""
    for rule in (*FOLLOWS, BEHIND_SLASH) if _behind_slash(text, start) else FOLLOWS:
        hit = rule.match(text, end, min(len(text), end + _AFTER))
        if hit is None:
            continue
        group = hit.lastgroup or "bare"
        value = hit[group].rstrip(".,;)") if group == "bare" else hit[group]
        if _is_secret(group, value) and not _other_name(hit):
            yield hit.start(group), hit.start(group) + len(value)
            return
    hit = JUXTAPOSED.match(text, end, end + _AFTER)
    if hit is None or not looks.bare_secret(hit["bare"]):
        return
    label = text[start:end].lower()
    if label in ("pw", "pwd") or (label in ("password", "passwd") and looks.scrambled(hit["bare"])):
        yield hit.span("bare")


def _behind_slash(text: str, start: int) -> bool:
    return text[max(0, start - 2) : start].rstrip().endswith("/")


def _is_secret(group: str, value: str) -> bool:
    match group:
        case "digits":
            return True
        case "quoted":
            return looks.quoted_secret(value)
        case "word":
            return looks.lone_word(value)
        case _:
            return looks.bare_secret(value)


def _weak(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The same behind words such as `token`, which stand before much that is no secret."""
    for rule in FOLLOWS:
        hit = rule.match(text, end, min(len(text), end + _AFTER))
        if hit is None or hit.lastgroup not in ("quoted", "bare") or _other_name(hit):
            continue
        group = hit.lastgroup
        value = hit[group].rstrip(".,;)")
        if not looks.referred(value) and (
            looks.opaque(value)
            or (group == "quoted" and len(value) >= 8 and looks.quoted_secret(value) and looks.strong(value))
        ):
            yield hit.start(group), hit.start(group) + len(value)
            return


def _other_name(hit: re.Match[str]) -> bool:
    tail = hit.groupdict().get("tail")
    return bool(tail and NOT_THE_SECRET.search(tail))


def _phrase(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    hit = PHRASE.match(text, end, end + _AFTER)
    if hit and not _SPOKEN.search(hit["value"]):
        yield hit.span("value")


def _key(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    hit = KEY.match(text, end, end + _AFTER)
    if hit and random_looking(hit["value"], _RANDOM) and not natural(hit["value"]):
        yield hit.span("value")


def _named(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for rule in NAMED:
        hit = rule.match(text, start, end + _AFTER)
        if hit and not looks.referred(hit["value"]) and not looks.stock(hit["value"]):
            yield hit.span("value")
            return


def _korean(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for rule in (*_KOREAN, KOREAN_BEHIND_SLASH) if _behind_slash(text, start) else _KOREAN:
        hit = rule.match(text, end, end + _AFTER)
        if hit is None:
            continue
        group = hit.lastgroup or "value"
        value = hit[group]
        if group in ("digits", "loose", "mixed") or not (
            looks.referred(value) or looks.stock(value) or (group == "value" and not looks.strong(value))
        ):
            yield hit.span(group)
            return


def _korean_key(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    hit = KOREAN_KEY.match(text, end, end + _AFTER)
    if hit and looks.strong(hit["value"]) and not looks.referred(hit["value"]):
        yield hit.span("value")


def _korean_code(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    hit = KOREAN_CODE.match(text, end, end + _AFTER)
    if hit:
        yield hit.span("digits")


_KOREAN = (*KOREAN, KOREAN_WORD_AND_SIGNS, KOREAN_LOOSE)
_SPOKEN = re.compile(r"\b(?:the|and|that|this|you|your|with|for|must|should|are|not|can|will|have|has|was)\b")
_RANDOM = 0.4
_BY_KIND = {
    "phrase": _phrase,
    "key": _key,
    "block": _key_block,
    "login": _login,
    "scheme": _scheme,
    "cookie": _cookie,
    "hashed": _hashed,
    "token": _token,
    "strong": _strong,
    "weak": _weak,
    "named": _named,
    "korean": _korean,
    "korean_weak": _korean_key,
    "code": _korean_code,
}


def build(options: LayerOptions) -> Credentials:
    """Never missing."""
    return Credentials()
