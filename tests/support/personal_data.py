"""Random valid values of every kind that must not leave, and sentences that people write them into.

Written from the public rules of each number; nothing here knows how a detector looks for them. Everything is drawn from
a `random.Random`, so that a seed names a case.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from ipaddress import IPv4Address, IPv6Address
from random import Random

from hypothesis import strategies as st

from tests.support import personal_sentences as sentences
from tests.support.korean_names import korean_name
from tests.support.korean_places import korean_address


@dataclass(frozen=True)
class Planted:
    """One value in its sentence.

    kind: which of `KINDS`. value: as its rules write it. before, after: the sentence around it.
    """

    kind: str
    value: str
    before: str
    after: str

    @property
    def text(self) -> str:
        return f"{self.before}{self.value}{self.after}"


def _digits(rng: Random, count: int) -> str:
    return "".join(rng.choice(string.digits) for _ in range(count))


def _weighed(digits: str, weights: Sequence[int]) -> int:
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=True))


# ---- Korean numbers ----

_BIRTH_WEIGHTS = (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)
_NEW_FORM_SINCE = date(2020, 10, 5)


def _birth(rng: Random, first: date, last: date) -> date:
    return first + timedelta(days=rng.randrange((last - first).days))


def resident_old(rng: Random) -> str:
    """Issued before October 2020: place of registration in it, and a check digit."""
    birth = _birth(rng, date(1930, 1, 1), _NEW_FORM_SINCE)
    century = rng.choice("12" if birth.year < 2000 else "34")
    head = f"{birth:%y%m%d}{century}{_digits(rng, 5)}"
    check = (11 - _weighed(head, _BIRTH_WEIGHTS) % 11) % 10
    return f"{head[:6]}-{head[6:]}{check}"


def resident_new(rng: Random) -> str:
    """Issued since: six random digits behind the first, no check digit."""
    birth = _birth(rng, _NEW_FORM_SINCE, date(2026, 6, 30))
    return f"{birth:%y%m%d}-{rng.choice('34')}{_digits(rng, 6)}"


def foreigner(rng: Random) -> str:
    birth = _birth(rng, date(1940, 1, 1), date(2024, 1, 1))
    century = rng.choice("56" if birth.year < 2000 else "78")
    head = f"{birth:%y%m%d}{century}{_digits(rng, 5)}"
    check = (13 - _weighed(head, _BIRTH_WEIGHTS) % 11) % 10 if rng.random() < 0.6 else rng.randrange(10)
    return f"{head[:6]}-{head[6:]}{check}"


def business(rng: Random) -> str:
    head = f"{rng.randrange(101, 900)}{rng.randrange(1, 100):02d}{_digits(rng, 4)}"
    total = _weighed(head, (1, 3, 7, 1, 3, 7, 1, 3, 5)) + int(head[8]) * 5 // 10
    number = f"{head}{(10 - total % 10) % 10}"
    return f"{number[:3]}-{number[3:5]}-{number[5:]}"


def corporate(rng: Random) -> str:
    office = rng.choice(("1101", "1346", "1801", "2001", "1201", "1601"))
    head = f"{office}{rng.choice(('11', '14', '21', '22'))}{_digits(rng, 6)}"
    check = (10 - _weighed(head, (1, 2) * 6) % 10) % 10
    return f"{head[:6]}-{head[6:]}{check}"


def passport_old(rng: Random) -> str:
    return f"{rng.choice('MMMSRGD')}{_digits(rng, 8)}"


def passport_new(rng: Random) -> str:
    return f"{rng.choice('MMMSRGD')}{_digits(rng, 3)}{rng.choice(string.ascii_uppercase)}{_digits(rng, 4)}"


def driver_licence(rng: Random) -> str:
    return f"{rng.randrange(11, 29)}-{rng.randrange(100):02d}-{_digits(rng, 6)}-{_digits(rng, 2)}"


def mobile(rng: Random) -> str:
    if rng.random() < 0.15:
        return (
            f"{rng.choice(('011', '016', '017', '018', '019'))}-{rng.randrange(200, 1000)}-{_digits(rng, 4)}"
        )
    number = f"{rng.randrange(2000, 10000)}-{_digits(rng, 4)}"
    return f"{rng.choice(('010-', '010-', '010-', '+82 10-', '+82-10-'))}{number}"


_AREAS = ("02", *(f"0{area}" for area in (31, 32, 33, 41, 42, 43, 44, 51, 52, 53, 54, 55, 61, 62, 63, 64)))


def landline(rng: Random) -> str:
    middle = rng.randrange(200, 1000) if rng.random() < 0.5 else rng.randrange(2000, 10000)
    area = rng.choice(_AREAS)
    return rng.choice((f"{area}-{middle}-{_digits(rng, 4)}", f"{area}){middle}-{_digits(rng, 4)}"))


def internet_phone(rng: Random) -> str:
    return (
        f"{rng.choice(('070', '070', '0502', '0505', '0507'))}-{rng.randrange(2000, 10000)}-{_digits(rng, 4)}"
    )


_ACCOUNTS = (
    (6, 2, 6),
    (3, 3, 6),
    (4, 3, 6),
    (3, 4, 4, 2),
    (4, 2, 7),
    (3, 6, 5),
    (3, 6, 2, 3),
    (4, 4, 4, 1),
    (4, 4, 4),
    (3, 2, 6),
    (3, 4, 4, 1),
    (3, 2, 6, 1),
)


def bank_account(rng: Random) -> str:
    """Grouped as one of the larger banks writes it; the sentences name a bank."""
    return "-".join(_digits(rng, length) for length in rng.choice(_ACCOUNTS))


_PLATE_SYLLABLES = "가나다라마거너더러머버서어저고노도로모보소오조구누두루무부수우주바사아자배하허호"


def plate(rng: Random) -> str:
    number = rng.randrange(10, 100) if rng.random() < 0.5 else rng.randrange(100, 700)
    return f"{number}{rng.choice(_PLATE_SYLLABLES)}{rng.choice(('', ' '))}{rng.randrange(1000, 10000)}"


# ---- everybody's ----

_LOCAL_PARTS = (
    "jiwoo",
    "minsu.kim",
    "s_yoon",
    "hong-gd",
    "anna.berg",
    "t.okafor",
    "park.hr",
    "lee2",
    "mkelly",
)
_DOMAINS = (
    "hanmail.net",
    "example.co.kr",
    "gmail.com",
    "corp-mail.io",
    "dept.univ.ac.kr",
    "firma.de",
    "shop.company",
)
_INTRANET = ("mailhost", "corp.local", "hq.internal", "exchange01", "intra.lan")


def email(rng: Random) -> str:
    tail = rng.choice(("", str(rng.randrange(10, 9999)), f"+{rng.choice(('news', 'bank', 'x1'))}"))
    return f"{rng.choice(_LOCAL_PARTS)}{tail}@{rng.choice(_DOMAINS)}"


def intranet_email(rng: Random) -> str:
    return (
        f"{rng.choice(_LOCAL_PARTS)}{rng.choice(('', str(rng.randrange(10, 999))))}@{rng.choice(_INTRANET)}"
    )


_SCHEMES = (
    (("4",), (4, 4, 4, 4)),
    (("51", "52", "53", "54", "55", "2221", "2720"), (4, 4, 4, 4)),
    (("34", "37"), (4, 6, 5)),
    (("3528", "3589"), (4, 4, 4, 4)),
    (("300", "305", "36", "38"), (4, 6, 4)),
    (("6011", "644", "65"), (4, 4, 4, 4)),
    (("62",), (4, 4, 4, 4)),
)


def card(rng: Random) -> str:
    prefixes, groups = rng.choice(_SCHEMES)
    prefix = rng.choice(prefixes)
    head = prefix + _digits(rng, sum(groups) - len(prefix) - 1)
    doubled = [int(digit) * (2 if at % 2 == 0 else 1) for at, digit in enumerate(reversed(head))]
    number = head + str(-sum(value - 9 if value > 9 else value for value in doubled) % 10)
    pieces, at = [], 0
    for length in groups:
        pieces.append(number[at : at + length])
        at += length
    return rng.choice(("-", " ")).join(pieces)


# n: digits, a: capital letters, c: either; the structure of the part behind the check digits.
_IBANS = {
    "DE": "n18",
    "GB": "a4n14",
    "FR": "n10c11n2",
    "NL": "a4n10",
    "ES": "n20",
    "IT": "a1n10c12",
    "NO": "n11",
    "CH": "n5c12",
    "PL": "n24",
    "MT": "a4n5c18",
}
_ALPHABETS = {
    "n": string.digits,
    "a": string.ascii_uppercase,
    "c": string.digits + string.ascii_uppercase,
}


def iban(rng: Random) -> str:
    country = rng.choice(sorted(_IBANS))
    structure, inner = _IBANS[country], ""
    while structure:
        kind, rest = structure[0], structure[1:]
        length = rest[: next((at for at, char in enumerate(rest) if char.isalpha()), len(rest))]
        inner += "".join(rng.choice(_ALPHABETS[kind]) for _ in range(int(length)))
        structure = rest[len(length) :]
    number = int("".join(str(int(char, 36)) for char in f"{inner}{country}00"))
    whole = f"{country}{98 - number % 97:02d}{inner}"
    return " ".join(whole[at : at + 4] for at in range(0, len(whole), 4))


def ssn(rng: Random) -> str:
    area = rng.choice([number for number in range(1, 900) if number != 666])
    return f"{area:03d}-{rng.randrange(1, 100):02d}-{rng.randrange(1, 10000):04d}"


def ipv4(rng: Random) -> str:
    """Of seven digits or more: a shorter one says too little to be told from chance on the wire."""
    private = rng.choice((10 << 24, (192 << 24) | (168 << 16), (172 << 24) | (16 << 16)))
    while True:
        number = (
            private | rng.randrange(1, 1 << 16) if rng.random() < 0.4 else rng.randrange(11 << 24, 223 << 24)
        )
        address = str(IPv4Address(number))
        if len(address) >= 10:
            return address


def ipv6(rng: Random) -> str:
    head = rng.choice((0x20010DB8, 0x2A0104F8, 0x24040120, 0xFD000000)) << 96
    tail = rng.getrandbits(96) if rng.random() < 0.5 else rng.getrandbits(40)
    address = IPv6Address(head | tail)
    return address.compressed if rng.random() < 0.7 else address.exploded


_US_AREAS = ("212", "415", "312", "617", "206", "305", "512", "646", "702", "808")


def us_phone(rng: Random) -> str:
    area, middle, last = rng.choice(_US_AREAS), rng.randrange(200, 1000), _digits(rng, 4)
    shape = rng.choice(("({}) {}-{}", "{}-{}-{}", "+1 {} {} {}", "{}.{}.{}", "1-{}-{}-{}"))
    return shape.format(area, middle, last)


def uk_phone(rng: Random) -> str:
    mobile_tail = f"{rng.randrange(400, 600)} {_digits(rng, 6)}"
    return rng.choice(
        (
            f"020 {rng.choice('378')}{_digits(rng, 3)} {_digits(rng, 4)}",
            f"0161 {rng.randrange(200, 1000)} {_digits(rng, 4)}",
            f"07{mobile_tail}",
            f"+44 7{mobile_tail}",
            f"+44 20 {rng.choice('378')}{_digits(rng, 3)} {_digits(rng, 4)}",
        )
    )


KINDS: dict[str, Callable[[Random], str]] = {
    "resident number, old form": resident_old,
    "resident number, new form": resident_new,
    "foreigner number": foreigner,
    "business number": business,
    "corporate number": corporate,
    "passport, old form": passport_old,
    "passport, new form": passport_new,
    "driver licence": driver_licence,
    "Korean mobile": mobile,
    "Korean landline": landline,
    "Korean internet telephone": internet_phone,
    "Korean bank account": bank_account,
    "Korean address": korean_address,
    "vehicle plate": plate,
    "Korean name": korean_name,
    "mail address": email,
    "intranet mail address": intranet_email,
    "card": card,
    "IBAN": iban,
    "US social security number": ssn,
    "IPv4 address": ipv4,
    "IPv6 address": ipv6,
    "US telephone": us_phone,
    "UK telephone": uk_phone,
}
NAME = "Korean name"


def planted(rng: Random, kind: str, value: str | None = None) -> Planted:
    """A value of `kind`, or the one given, in a sentence of its kind."""
    made = KINDS[kind](rng) if value is None else value
    before, after = sentences.around(rng, kind, made)
    return Planted(kind, made, before, after)


def plantings(kinds: Sequence[str] = tuple(KINDS)) -> st.SearchStrategy[Planted]:
    """Values in sentences."""
    return st.builds(
        lambda kind, seed: planted(Random(seed), kind),
        st.sampled_from(list(kinds)),
        st.integers(0, 2**32),
    )
