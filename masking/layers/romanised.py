"""Korean, Chinese and Vietnamese names in Latin letters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from weighbridge.masking.entities import Span

_SURE = (
    "Kim|Lee|Park|Bak|Choi|Choe|Jung|Jeong|Chung|Cheong|Kang|Cho|Yoon|Yun|Jang|Chang|Lim|Seo|Suh|Shin|Kwon"
    "|Gwon|Hwang|Hwangbo|Ahn"
    "|Ryu|Yoo|Hong|Jeon|Jun|Koh|Moon|Mun|Yang|Sohn|Bae|Baek|Paik|Baik|Heo|Huh|Hur|Nam|Shim|Noh|Roh|Kwak|Gwak"
    "|Sung|Seong|Joo"
    "|Koo|Eom|Chae|Bang|Gong|Byun|Byeon|Yeo|Choo|Seok|Seol|Yeon|Pyo|Myung|Myeong|Maeng|Namgung|Namkoong"
    "|Jegal|Sunwoo|Tak"
    "|Yim|Rhee|Yi|Ri|Pak|Oh|Song|Han|Im|Min|Woo|Cha|Jo|Yu|Son|Sim|No|Ha|Ju|Ku|Gu|Na|Ji|Jin|Um|Won|Do|So|Sun"
    "|Ma|Gil|Wi|Ki|Ban"
    "|Wang|Ok|In|Je|Mo|An|Ko|Go|Ra|Ro|Seon|Bong|Pyeon|Yong|Eun|Gi|Dan|Hyun|Hyeon|Ham|Yeom|Cheon|Chun|Kong"
)
# English words too, so their given name must be of two joined parts.
_WORDS = frozenset(
    {
        "Do",
        "So",
        "No",
        "In",
        "An",
        "Go",
        "Ha",
        "Ban",
        "Ma",
        "Won",
        "Sun",
        "Song",
        "Long",
        "Park",
        "Son",
        "Min",
        "Pak",
        "Bang",
        "Gong",
        "Moon",
        "Yang",
        "Hang",
        "Sung",
        "Dan",
        "Ham",
        "Um",
        "Oh",
        "Im",
        "Chun",
        "Kong",
        "Cha",
        "Chang",
        "Gil",
    }
)
_SYLLABLE = (
    r"(?:(?:kk|gg|tt|dd|pp|bb|ss|jj|ch|sh|[gkndtrlmbpsjhwy])?(?:yeo|yae|wae|eui|eo|ae|eu|ya|ye|yo|yu|wa|we"
    r"|wi|wo|oe|ui|oo|ee|ou|ie|a|e|i|o|u)"
    r"(?:ng|ck|[nmlkptrgbh])?)"
)
_HYPHENED = rf"{_SYLLABLE}-{_SYLLABLE}"
_JOINED = rf"{_SYLLABLE}{{2}}"
_APART = rf"{_SYLLABLE}[ ]{_SYLLABLE}"
_SURNAME = rf"(?:{_SURE})"
_SHORTEST = 5
# Words that begin with a capital: no name has others.
_CAPITALISED = re.compile(r"(?<![A-Za-z])[A-Z][A-Za-z'.-]{0,24}(?:,?[ ]{1,2}[A-Z][A-Za-z'.-]{0,24}){0,7}")
_NAMES = re.compile(
    rf"(?<![A-Za-z-])(?:(?P<before>{_SURNAME}),?[ ](?P<given>{_HYPHENED}|{_APART}|{_JOINED})"
    rf"|(?P<first>{_HYPHENED}|{_JOINED}|{_APART})[ ](?P<after>{_SURNAME}))(?![A-Za-z-])",
    re.IGNORECASE,
)
_GIVEN_ALONE = re.compile(rf"(?<![A-Za-z-])(?P<value>{_HYPHENED})(?![A-Za-z-])", re.IGNORECASE)
_VIET = re.compile(
    r"(?<![A-Za-z])(?:(?:Nguyen|Tran|Pham|Hoang|Huynh|Phan|Vu|Vo|Dang|Bui|Duong|Ngo|Ly|Le|Dinh|Truong|Trinh"
    r"|Doan)(?:[ ][A-Z][A-Za-z]{1,7}){1,3}"
    r"|(?:NGUYEN|TRAN|PHAM|HOANG|HUYNH|PHAN|VU|VO|DANG|BUI|DUONG|NGO|LY|LE|DINH|TRUONG|TRINH"
    r"|DOAN)(?:[ ][A-Z]{2,8}){1,3})(?![A-Za-z])"
)
_CHINESE = re.compile(
    r"(?<![A-Za-z])(?:Li|Wang|Zhang|Liu|Chen|Yang|Zhao|Huang|Zhou|Wu|Xu|Sun|Hu|Zhu|Gao|Lin|He|Guo|Ma|Luo"
    r"|Liang|Xie|Tang|Deng|Feng|Cao|Peng|Zeng|Xiao|Tian"
    r"|Dong|Pan|Yuan|Cai|Jiang|Yu|Du|Ye|Cheng|Wei|Su|Lu|Ding|Ren|Shen|Yao)[ ](?P<given>(?:(?:zh|ch|sh"
    r"|[bpmfdtnlgkhjqxrzcsyw])?(?:iang|uang|iong|ang|eng|ing|ong|uai|uan"
    r"|iao|ian|ai|ei|ao|ou|an|en|in|un|ia|ie|iu|ua|uo|ui|ue|a|o|e|i|u)){1,2})(?![A-Za-z])",
    re.IGNORECASE,
)
_CAPITALS = re.compile(
    r"(?<![A-Za-z])(?P<value>[A-Z]{2,15}(?:[ ][A-Z]{2,15}(?:-[A-Z]{2,15})?){1,3})"
    r"(?=[ \t]{1,4}(?:[가-힣]{2,8}|[A-Z][a-z]+)?[ \t]{0,6}(?:\d{6}|[A-Z]{1,2}\d{7,8})|[ ]?[(/][가-힣 ]{2,12}[)/])"
)
_BESIDE_HANGUL = re.compile(
    r"[가-힣]{2,5}[ ]?\((?P<value>[A-Z][A-Za-z'-]{1,15}(?:,?[ ][A-Z][A-Za-z'.-]{0,15}){1,3})(?=[),])"
    r"|(?P<front>(?<![A-Za-z])[A-Z][a-z'-]{1,15}(?:[ ][A-Z][A-Za-z'.-]{0,15}){1,3})[ ]?(?=\([가-힣 ]{2,14}\)"
    r"|(?:씨|님|군|양|대표|교수|과장|부장|차장|팀장|대리|이사|박사)(?![가-힣]{3}))"
)
_PART = r"[A-Z][A-Za-z]{1,20}\d{0,3}(?:beon)?-(?:gu|ro|gil|daero|dong|si|gun|eup|myeon|ri|do|ga)(?![A-Za-z])"
_FURTHER = (
    r"(?:\d{1,5}(?:-\d{1,5})?(?:F|ho|beon-gil)?|[A-Z]?\d{0,4}F|#\d{1,5}|Seoul|Busan|Daegu|Incheon|Gwangju"
    r"|Daejeon|Ulsan|Sejong|Jeju|(?:Republic of |South )?Korea)"
)
_ADDRESS = re.compile(
    rf"(?<![A-Za-z0-9])(?:#?[0-9A-Z-]{{1,8}}(?:ho|F)?,?[ ]{{1,2}}){{0,3}}{_PART}(?:,?[ ]{{1,2}}(?:{_PART}"
    rf"|{_FURTHER})(?![A-Za-z])){{0,8}}"
)
_HYPHEN_WORDS = frozenset(
    {
        "so-so",
        "no-no",
        "do-in",
        "go-to",
        "to-do",
        "in-on",
        "be-in",
        "un-do",
        "re-do",
        "an-on",
        "a-la",
        "on-on",
        "co-op",
        "to-be",
        "by-the",
    }
)


def romanised(text: str) -> Iterator[Span]:
    """Spans, overlapping or not."""
    for words in _CAPITALISED.finditer(text):
        yield from _in_words(text, *words.span())
    for hit in _CAPITALS.finditer(text):
        yield *hit.span("value"), "PERSON"
    if "-" in text:
        for hit in _ADDRESS.finditer(text):
            yield *hit.span(), "ADDRESS"
    for hit in _BESIDE_HANGUL.finditer(text):
        yield *hit.span("value" if hit["value"] else "front"), "PERSON"


def _in_words(text: str, first: int, last: int) -> Iterator[Span]:
    if last - first < _SHORTEST:
        return
    for hit in _NAMES.finditer(text, first, last):
        surname, given = (hit["before"], hit["given"]) if hit["before"] else (hit["after"], hit["first"])
        if _person(surname, given):
            yield *hit.span(), "PERSON"
    for hit in _GIVEN_ALONE.finditer(text, first, last):
        value = hit["value"]
        if value.lower() not in _HYPHEN_WORDS and len(value) >= _SHORTEST:
            yield *hit.span(), "PERSON"
    for hit in _VIET.finditer(text, first, last):
        yield *hit.span(), "PERSON"
    for hit in _CHINESE.finditer(text, first, last):
        if hit["given"][0].isupper():
            yield *hit.span(), "PERSON"


def _person(surname: str, given: str) -> bool:
    """Written as names are: capitals at the front, or all of them."""
    if not surname[0].isupper() or not given[0].isupper():
        return False
    if "-" in given:
        return True
    if " " in given:
        return given.split(" ")[1][0].isupper() and surname.capitalize() not in _WORDS
    return len(given) > 3 and surname.capitalize() not in _SHORT_WORDS


_SHORT_WORDS = frozenset(
    {
        "Do",
        "So",
        "No",
        "In",
        "An",
        "Go",
        "Ha",
        "Ban",
        "Ma",
        "Won",
        "Sun",
        "Im",
        "Um",
        "Oh",
        "Na",
        "Je",
        "Mo",
        "Gi",
        "Ki",
        "Ok",
        "Ro",
        "Ra",
        "Min",
        "Gong",
        "Bang",
        "Chun",
        "Ham",
    }
)
