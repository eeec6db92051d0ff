"""Names of people that what stands beside them gives away: titles, labels, greetings, keys of JSON, a Korean surname.

Needs no model. In contexts that say "a name follows" a name may be written small; elsewhere it must be capitalised.
"""

from __future__ import annotations

import regex

from weighbridge.masking.entities import Span
from weighbridge.masking.layers.en_words import (
    COMMON,
    GIVEN,
    KOREAN_SURNAMES,
    LOOSE_TITLES,
    PARTICLES,
    SYLLABLE,
    TITLES,
    WORDS_TOO,
    words,
)

_GAP = r"[^\S\r\n]{1,3}"
_WORD = regex.compile(r"(?:[OoDdLl]['’])?\p{L}[\p{L}'’]{0,30}(?:-\p{L}[\p{L}'’]{0,30}){0,3}\.?")
_BETWEEN = regex.compile(rf"{_GAP}|,{_GAP}(?=(?:Jr|Sr|II|III|MD|PhD)\b)|\.(?=\p{{Lu}})")
_LINE_ENDS = regex.compile(r"[^\S\r\n]{0,3}(?:[\r\n\"'),;]|\Z)")
_MOST_WORDS = 6
_FEW_SMALL = 3

_TITLE = regex.compile(
    rf"(?<!\p{{L}})(?:(?:{'|'.join(word.capitalize() for word in TITLES)}"
    rf"|{'|'.join(word.upper() for word in TITLES)})"
    rf"|(?P<loose>(?i:{'|'.join(LOOSE_TITLES)})))(?:\.{_GAP}?|{_GAP})(?=\p{{L}})"
)
_ROLE = (
    r"patient|customer|client|employee|applicant|contact(?: person)?|attn|attention|author|reporter|assignee"
    r"|assigned to"
    r"|requester|cardholder|card holder|account holder|beneficiary|guardian|tenant|landlord|manager|supervisor"
    r"|attendees?"
    r"|participants?|passenger|guest|buyer|seller|sender|recipient|receiver|consignee|insured|policy ?holder"
    r"|claimant"
    r"|plaintiff|defendant|witness|spouse|husband|wife|mother|father|son|daughter|brother|sister|next of kin"
    r"|emergency contact|doctor|physician|nurse|teacher|student|professor|candidate|interviewer|signatory"
    r"|signed(?: by)?"
    r"|signature|prepared by|approved by|reviewed by|submitted by|written by|directed by|starring|by|from|to|cc|bcc"
    r"|ship to|bill to|sold to|deliver to|billing address|shipping address|mailing address|speaker|host"
    r"|organi[sz]er"
    r"|lead|owner|agent|user|member|caller|resident|subject|respondent|who"
)
_ANY_NAME = (
    # "Name: x", "full name = x", "name of the tenant is x"
    r"(?:name|nickname|alias|surname|forename)s?(?: (?:of|on|in|for) (?:the |my |your |our |his |her )"
    r"?[a-z]{1,16}(?: [a-z]{1,16})?)?"
    r"(?: ?[:=]| is| was|'s| will be)"
    r"|name\?(?:\s{1,3}(?:user|customer|caller|client|me|a|it is|it's)[: ])?"
    r"|name on the account\?(?: user:)?|(?:change|correct|update|rename) (?:it|this|that) to"
    r"|(?:call|calls|called|calling|named|name) (?:me|him|her|us)|(?:was|is|were|are|been|girl|boy|man|woman"
    r"|guy|someone|person) "
    r"(?:called|named)|known as|a\.?k\.?a\.?|goes by|went by|née|nee|born as"
    r"|(?:i am|i'm) (?:mr|mrs|ms|dr)\.?|my name'?s"
)
_CAP_NAME = (
    r"(?:i am|i'm|this is|it's|it is|that's|here is|here's|speaking to|speak (?:to|with)|spoke (?:to|with)|talk"
    r"(?:ed)? (?:to|with)"
    r"|meet(?:ing)? with|met with|met|ask(?:ed)? for|contact|reach|call|tell|told|ask|asked|email|emailed|cc'?d"
    r"|ping|add"
    r"|account of|behalf of|care of|c/o|yours|love|signed|sincerely|regards|cheers|best|thanks|thank you|from"
    r"|by|with|for"
    r"|dear|hi|hello|hey|hiya|good (?:morning|afternoon|evening|day)|congratulations|congrats|welcome|happy"
    r" birthday|morning"
    r"|patient|customer|client|employee|tenant|witness|student|mr|friend|colleague|boss|neighbou?r|cousin|uncle"
    r"|aunt|wife|husband|brother|sister|mother|father|mom|mum|dad|son"
    r"|daughter|partner|fiancée?|girlfriend|boyfriend|roommate|assistant|lawyer|attorney|accountant|therapist"
    r"|landlord"
    r"|interviewed|hired|fired|married|divorced|tribute to|take on|featuring|features|starring)"
)
_CONTEXTS = tuple(
    (regex.compile(rule), small)
    for rule, small in (
        (rf"(?i)(?<![\p{{L}}\d])(?:{_ANY_NAME})[\"'’“(*_]{{0,3}}\s{{1,3}}[\"'’“(*_]{{0,3}}(?=\p{{L}})", True),
        (
            r"(?i)(?<![\p{L}\d_])(?:name|nickname|alias|surname|forename)\*{0,2}[:=]\*{0,2}(?=\p{L})",
            True,
        ),
        (rf"(?i)(?<![\p{{L}}\d])(?:{_ROLE})(?: name)?\*{{0,2}}:\*{{0,2}}\s{{0,6}}[\"'“(]?(?=\p{{L}})", False),
        (rf"(?i)(?<![\p{{L}}\d])(?:{_CAP_NAME}),?[^\S\r\n]{{1,3}}[\"'“(]?(?=\p{{L}})", False),
    )
)
_SIGNED_OFF = regex.compile(
    r"(?i)(?:^|[.!?]\s{1,2})(?:(?:kind|best|warm|many|with)?[^\S\r\n]?(?:kind |best |warm )?regards|sincerely"
    r"|best(?: wishes)?|cheers"
    r"|thanks(?: (?:again|so much|a lot|in advance))?|thank you(?: very much)?|yours(?: (?:truly|sincerely"
    r"|faithfully))?|love"
    r"|xoxo|br|rgds|take care|talk soon|signed)[,.!]?[^\S\r\n]{0,3}(?:\r?\n\s{0,8}|,[^\S\r\n]{1,3}"
    r")[-–~*]{0,2}[^\S\r\n]?(?=\p{L})",
    regex.MULTILINE,
)
_SPEAKER = regex.compile(
    r"(?m)^[^\S\r\n>]{0,8}((?:\p{Lu}[\p{L}'’.-]{1,30})(?: \p{Lu}[\p{L}'’.-]{0,30}){0,3}):(?=\s?[\"“\p{L}])"
)
# A capitalised word that does what people do.
_DOES = regex.compile(
    r"(?:^|[.!?\"“”:]\s{1,2})(\p{Lu}[\p{Ll}'’-]{1,30}(?: \p{Lu}[\p{Ll}'’-]{1,30}){0,2}) (?:began|said|says|told"
    r"|tells|asked|asks|wrote"
    r"|writes|spent|lives|lived|works|worked|thinks|thought|wants|wanted|called|gave|had given|replied|answered"
    r"|added|moved|joined"
    r"|married|died|grew up|was born|listed|points out|loves|likes|hates|emailed|texted|phoned|visited|smiled"
    r"|laughed|cried)\b",
    regex.MULTILINE,
)
_GIVEN_THEN = regex.compile(
    r"(?<![\p{L}\d_])\p{Lu}\p{Ll}{1,15}(?![\p{L}\d_])|(?<![\p{L}\d_])\p{Lu}{2,15}(?![\p{L}\d_])"
)
_LAST_NAME_FIRST = regex.compile(r"(?<![\p{L}\d])(\p{Lu}[\p{L}'’-]{1,30}), \Z")
_INITIALS = regex.compile(
    r"(?<![\p{L}\d])\p{Lu}[\p{L}'’-]{1,30} (?:\p{Lu}\. ?){1,2}\p{Lu}[\p{L}'’-]{1,30}"
    r"|(?<![\p{L}\d.])(?:\p{Lu}\. ?){1,2}\p{Lu}\p{Ll}[\p{L}'’-]{1,30}|(?<![\p{L}\d])\p{Lu}[\p{Ll}'’-]{1,30}"
    r" \p{Lu} \p{Lu}[\p{Ll}'’-]{1,30}"
)
_ACCENTED = regex.compile(r"(?<![\p{L}\d])\p{Lu}[\p{L}'’-]{1,40}(?![\p{L}])")
_ASCII_NAME = regex.compile(r"[A-Za-z'’.-]+", regex.ASCII)

_ROMAN_GIVEN = rf"(?=\p{{Lu}})(?i:{SYLLABLE}[- ]?{SYLLABLE})"
_ROMAN_SURNAME = "|".join([*KOREAN_SURNAMES, *map(str.upper, KOREAN_SURNAMES)])
_KOREAN = tuple(
    regex.compile(rule)
    for rule in (
        rf"(?<![\p{{L}}\d])(?:{_ROMAN_SURNAME}),? (?:{_ROMAN_GIVEN})(?![\p{{L}}\d])",
        rf"(?<![\p{{L}}\d])(?=\p{{Lu}})(?i:{SYLLABLE}{SYLLABLE}),? (?:{_ROMAN_SURNAME})(?![\p{{L}}\d])",
    )
)
_HYPHENATED = regex.compile(rf"(?<![\p{{L}}\d-])(?i:({SYLLABLE})-({SYLLABLE}))(?![\p{{L}}\d-])")
_SURNAME_BEFORE = regex.compile(rf"(?<![\p{{L}}\d])(?i:{_ROMAN_SURNAME}),? \Z")
_SURNAME_AFTER = regex.compile(rf",? (?i:{_ROMAN_SURNAME})(?![\p{{L}}\d])")
# What stands in Log-in, Pop-up and To-do.
_NO_SYLLABLES = words(
    "add ad bi bye cut de di due ee ex go hi hot in it log me mid mini my non not on one op"
    " pop pre pro put re see semi set sign"
    " sit so sub ten tip to top two un up we win"
)


def people(text: str) -> list[Span]:
    """Names in a folded text, in any order."""
    spans: list[Span] = []
    for hit in _TITLE.finditer(text):
        end = name_end(text, hit.end(), small=hit["loose"] is not None and hit["loose"][0].islower())
        if end > hit.end():
            spans.append((hit.start(), end, "PERSON"))
    for rule, small in _CONTEXTS:
        for hit in rule.finditer(text):
            end = name_end(text, hit.end(), small=small)
            if end > hit.end():
                spans.append((hit.end(), end, "PERSON" if small else "NAME"))
    for hit in _SIGNED_OFF.finditer(text):
        end = name_end(text, hit.end(), small=False)
        if end > hit.end():
            spans.append((hit.end(), end, "PERSON"))
    for hit in _SPEAKER.finditer(text):
        if not any(word.strip(".").lower() in COMMON for word in hit[1].split()) and _person_like(hit[1]):
            spans.append((*hit.span(1), "NAME"))
    for hit in _DOES.finditer(text):
        if not any(word.lower() in COMMON for word in hit[1].split()):
            spans.append((*hit.span(1), "NAME"))
    for hit in _INITIALS.finditer(text):
        start, end = hit.span()
        if not any(len(word) > 2 and word.lower() in COMMON for word in hit.group().split()):
            spans.append((start, end, "PERSON"))
    for hit in _GIVEN_THEN.finditer(text):
        given = hit.group().lower()
        if given in GIVEN:
            end = name_end(text, hit.start(), small=False)
            if end > hit.end() or given not in WORDS_TOO:
                # Smith, Jane
                last = _LAST_NAME_FIRST.search(text, max(0, hit.start() - 34), hit.start())
                start = last.start() if last and last[1].lower() not in COMMON else hit.start()
                spans.append((start, max(end, hit.end()), "PERSON"))
    for hit in _ACCENTED.finditer(text):
        if not hit.group().isascii() and not _ASCII_NAME.fullmatch(hit.group()):
            spans.append((hit.start(), max(hit.end(), name_end(text, hit.start(), small=False)), "NAME"))
    spans.extend(_korean(text))
    return spans


def _korean(text: str) -> list[Span]:
    """Romanised Korean names: Kim Minsu, KIM MIN SU, Min-su Kim, kim min-su, Min-su."""
    spans: list[Span] = [(*hit.span(), "PERSON") for rule in _KOREAN for hit in rule.finditer(text)]
    for hit in _HYPHENATED.finditer(text):
        start, end = hit.span()
        before = _SURNAME_BEFORE.search(text, max(0, start - 10), start)
        after = _SURNAME_AFTER.match(text, end)
        if before or after:
            spans.append((before.start() if before else start, after.end() if after else end, "PERSON"))
        elif hit.group()[0].isupper() and not {hit[1].lower(), hit[2].lower()} & (_NO_SYLLABLES | COMMON):
            spans.append((start, end, "NAME"))
    return spans


def _person_like(words: str) -> bool:
    first = words.split()[0].lower()
    return first in GIVEN or not words.isascii()


def name_end(text: str, start: int, *, small: bool) -> int:
    """Where a name that begins at `start` ends; `start` itself when none does.

    Args:
        small: the name may be written in small letters.
    """
    end = at = start
    for number in range(_MOST_WORDS):
        word = _WORD.match(text, at)
        if word is None:
            break
        bare = word.group().rstrip(".'’")
        plain = bare.lower() in COMMON
        if bare.endswith(("'s", "’s")):
            bare = bare[:-2]
            plain = bare.lower() in COMMON
            if not plain and (bare[:1].isupper() or (small and number < _FEW_SMALL)):
                end = at + len(bare)
            break
        if bare[:1].isupper():
            # Halima Said: a common word ends a name, unless the line ends with it.
            if plain and not (number and (len(bare) == 1 or _LINE_ENDS.match(text, word.end()))):
                break
            # A full stop ends the sentence unless an initial or a title stands before it.
            dotted = word.group().endswith(".")
            end = word.end() if dotted and len(bare) < 4 else at + len(bare)
            if dotted and len(bare) > 3:
                break
        elif bare.lower() in PARTICLES and number and bare not in ("and", "of"):
            pass
        elif (small or (bare in GIVEN and bare not in WORDS_TOO)) and not plain and number < _FEW_SMALL:
            end = at + len(bare)
            if word.group().endswith("."):
                break
        else:
            break
        gap = _BETWEEN.match(text, word.end())
        if gap is None:
            break
        at = gap.end()
    return end
