"""Names of people that something beside them tells: a label, a title, a key of JSON, their own spelling."""

from __future__ import annotations

import re
from collections.abc import Iterator

from weighbridge.masking.entities import Span
from weighbridge.masking.layers.korean import (
    GIVEN,
    JOSA,
    LONG_SURNAMES,
    NO_NAMES,
    SURNAMES,
    TITLES,
    name_shaped,
)

_SURNAME = f"(?:{'|'.join(LONG_SURNAMES)}|[{''.join(sorted(SURNAMES))}])"
_FULL = rf"{_SURNAME}[가-힣]{{1,2}}"
_END = rf"(?=(?:{JOSA})?(?![가-힣]))"
_LATIN_NAME = r"[A-Z][A-Za-z'.-]{0,20}(?:(?:,|[ ]?/)?[ ]{1,2}[A-Z][A-Za-z'.-]{0,20}){0,5}"
_SPACED = (
    r"[가-힣](?:[ \t]{1,3}|[ \t]{0,2}\n[ \t]{0,3})[가-힣](?:[ \t]{1,3}"
    r"|[ \t]{0,2}\n[ \t]{0,3})[가-힣](?![가-힣])"
)

# Labels that only a name can follow.
_SURE = (
    r"(?:성[ ]{0,4}(?:명|함)|이[ ]{0,4}름|실명|본명|예명|성명\(한글\)|예금주|계좌주|수취인|수령인|수신인"
    r"|발신인|송금인|입금자|입금인|받는[ ]?(?:분|사람|이)"
    r"|보내는[ ]?(?:분|사람|이)|명의인?자?|(?:full|first|last|given|family|user|customer|patient|employee"
    r"|contact)?[ _-]?name|surname"
    r"|[가-힣]{1,6}(?:자|인|원|생|객|장|주)[ ]?(?:명|성명|성함|이름))"
)
# Labels that a name follows more often than not: 담당자, 신청인, 위반자, 임차인, 작성.
_LIKELY = (
    r"(?:[가-힣]{0,6}(?:자|인|원|객|주|생)|담당|작성|검토|승인|결재|전결|접수|상담|진료|집도|주치의|대표이사"
    r"|대표|사장|회장|이사장|원장|학생|환자|고객|회원"
    r"|남편|아내|배우자|아버지|어머니|부친|모친|아들|딸|자녀|형|누나|언니|오빠|동생|친구|애인|부인|보호자"
    r"|수신|발신|참조|서명|친권자|강사|감독|교사"
    r"|author|manager|contact|owner|sender|receiver|recipient|customer|patient|applicant|attendees?|assignee"
    r"|reporter)"
)
_NOTE = r"(?:[ ]?[(\[][^()\[\]\n]{1,16}[)\]])?"
_SIGN = r"[ \t]{0,3}[:=|][ \t]{0,3}"
_FOREIGN = r"[가-힣]{1,8}(?:[ ·][가-힣]{1,8}){1,4}(?=[ ]{0,2}(?:$|[\n,(/|;)\]\"'<]))"
_SURE_VALUE = re.compile(
    rf"(?<![가-힣A-Za-z]){_SURE}{_NOTE}(?:(?P<sign>{_SIGN})(?:\n[ \t]{{0,4}})?|[ \t]{{1,4}}|[은는이가]?[ ]"
    rf"|(?P<line>[ \t]{{0,3}}\n[ \t]{{0,4}}))[\"'\[]?"
    rf"(?P<value>{_SPACED}|{_FOREIGN}|[가-힣]{{2,12}}|{_LATIN_NAME})",
    re.IGNORECASE | re.MULTILINE,
)
_LIKELY_VALUE = re.compile(
    rf"(?<![가-힣A-Za-z]){_LIKELY}{_NOTE}(?P<sign>{_SIGN}|[ \t]{{1,4}}"
    rf"|[은는이가][ ])[\"'\[]?(?P<value>{_FULL}{_END}|{_SPACED}|{_LATIN_NAME})",
    re.MULTILINE,
)
_OTHER_SPELLING = re.compile(r"[ ]?\((?:[A-Z][A-Za-z'., -]{2,40}|[\u4e00-\u9fff ]{2,8})\)")
_SPACED_VALUE = re.compile(_SPACED)
# The name of a thing, not of a person.
_OF_THINGS = re.compile(
    r"(?:제품|상품|품목|파일|회사|업체|기관|건물|단지|학교|부서|팀|서비스|프로젝트|브랜드|앱|도메인|서버"
    r"|모델|변수|함수|클래스|테이블|컬럼|필드|폴더|패키지"
    r"|product|file|class|company|project|model|server|host|domain|table|column|field|function|package|brand"
    r"|display|variable|tool)[ _-]?\Z",
    re.IGNORECASE,
)
_JOSA_END = re.compile(rf"(?:{JOSA})\Z")
_LABEL_WORD = re.compile(
    r"(?:생년|주민|연락|전화|주소|소속|직급|직책|부서|나이|성별|국적|이메일|번호|기재|작성|입력|확인|변경"
    r"|등록|공개|정보|표기|서명|날인|미상|없음|필수|선택|한글|영문|한자|모름|비공개|동일|상이|불명)"
)

# A name and a title; a surname and a title.
_BEFORE_TITLE = re.compile(
    rf"(?<![가-힣])(?P<value>{_SURNAME}(?:[가-힣]{{1,2}})?)(?P<gap>[ ]?)(?:[전현고][ ])?(?P<title>{TITLES})"
    rf"(?=님?(?:{JOSA}|들|측|실|직)?(?![가-힣]))"
)
# A given name alone: 지수 씨, 수지님.
_HONOURED = re.compile(
    rf"(?<![가-힣])(?P<value>[가-힣]{{2,3}})(?P<how>[ ]씨|[ ]?님)(?=(?:{JOSA})?(?![가-힣]))"
)
_TITLE_WORDS = frozenset(TITLES.split("|"))
_KIN = frozenset(
    {
        "부모",
        "어머",
        "아버",
        "할머",
        "할아버",
        "며느",
        "장모",
        "장인",
        "형수",
        "도련",
        "아주버",
        "하나",
        "조상",
        "임금",
        "따",
        "서방",
    }
)
_ROLE = re.compile(
    r"(?:배우|가수|멤버|걸그룹|보이그룹|래퍼|개그맨|개그우먼|방송인|탤런트|모델|아이돌|작가|감독|시인|화가"
    r"|선수|주인공|캐릭터|악당|범인|용의자|피의자|피해자)"
    rf"[ ](?P<value>{_FULL}){_END}"
)
_SECOND_WORD = re.compile(rf"(?<=[가-힣])[ ]{{1,2}}(?P<value>{_FULL}){_END}")
_TITLE_BEFORE = re.compile(rf"(?:{TITLES}|전결|팀|과|부|실|국|처|청|센터|본부|담당|지점|파트)\Z")
_LONGEST_TITLE = 6
_FIELD_ENDS = frozenset({"", "\n", ",", ")", "(", "/", "|"})
_WHOLE_CELL = re.compile(
    rf"(?:^|\t|[ ]{{2}}|[|,\[(\"'/:>])[ \t]{{0,3}}[-*•·■□○]?[ ]?(?P<value>{_FULL})(?=[ \t]{{0,2}}(?:$|\t"
    rf"|[ ]{{2}}|[|,\])\"'/<(]|\d))",
    re.MULTILINE,
)
_SPACED_NAME = re.compile(
    rf"(?<![가-힣])(?P<value>[{''.join(sorted(SURNAMES))}](?:[ ]{{1,3}}"
    rf"|[ ]?\n[ ]{{0,2}})[가-힣](?:[ ]{{1,3}}|[ ]?\n[ ]{{0,2}})[가-힣])"
    rf"(?=(?P<title>[ ]?(?:{TITLES}))?(?:{JOSA})?(?:[ ]?(?:{TITLES}))?(?![가-힣]))"
)
# A name that a line end cuts: 홍길\n동 과장.
_BROKEN = re.compile(
    rf"(?<![가-힣])(?P<value>(?:{_SURNAME}\n[가-힣]{{2}}"
    rf"|{_SURNAME}[가-힣]\n[가-힣]))(?=(?:{JOSA})?[ ]?(?:{TITLES})?(?![가-힣]))"
)
_ANONYMOUS = re.compile(
    r"(?<![A-Za-z0-9.-])[A-Z](?=[ ]?(?:\([^()\n]{1,12}\))?[ ]?(?:씨|군|양|모|여인|할머니|경위|기자|교수|의원"
    r"|대표|교사|판사|검사|변호사)(?![가-힣]{4}))"
    r"|(?<![가-힣])(?P<value>[가-힣])(?=(?:모|○{1,2}|[*]{1,2}|OO|XX)(?:[ ]?(?:씨|군|양|\()|[가-힣]?[ (]))"
)
_WITH_AGE = re.compile(
    r"(?P<value>[가-힣A-Za-z]{1,10}(?:[ ][가-힣]{1,8}){0,3})[ ]?\((?:본명[ ][^()\n]{2,12}"
    r"|(?:만[ ]?)?\d{2}[ ]?(?:세|[·,][ ]?[남여]|\)|·))"
)
_REAL_NAME = re.compile(
    r"(?:본명|예명|가명|아명|필명|세례명|별명)[은이:]?[ ]?[\"'(]?(?P<value>[가-힣]{2,5}"
    r"|[A-Z][A-Za-z. -]{2,20})"
)
_HAN = re.compile(
    r"(?<![\u4e00-\u9fff])[\u4e00-\u9fff]{2,4}(?![\u4e00-\u9fff])"
    r"|(?<![가-힣])[가-힣]{1,2}[\u4e00-\u9fff]{1,2}[가-힣]?(?![\u4e00-\u9fff])"
)
_INITIALS = re.compile(r"(?<=[가-힣] )[A-Z]\.(?=[ ]?[가-힣])|(?<![A-Za-z])(?:[A-Z]\.[ ]?){2,3}(?=[가-힣])")
_POST_AND_LATIN = re.compile(
    rf"(?:{TITLES})[ ](?P<value>[A-Z][a-z'-]{{1,15}}(?:[ ][A-Z][A-Za-z'.-]{{0,15}}){{1,3}})"
)

# Vietnamese and Chinese surnames as Hangul spells them, with what follows.
_VIET = re.compile(
    r"(?<![가-힣])(?:응우옌|응우엔|응웬|응유엔|응웨옌|누엔|쩐|짠|팜|호앙|부이|즈엉|쯔엉|도안|딘|당|레|보|부"
    r"|판|리)"
    r"(?:[ ]?(?:티|반|쑤언|쑤안|득|민|탄|타인|꽝|꾸옥|응옥|훙|흐우|투|칸|안|비엣|홍|킴|김|뚜언|꾸억|쩌우"
    r"|바오)){1,3}(?:[ ]?[가-힣]{1,3}?)?"
    rf"(?=(?:{JOSA}|[ ]?(?:{TITLES}))?(?![가-힣]))|(?<![가-힣])응(?:우옌|우엔|웬|유엔"
    rf"|웨옌)(?:[ ]?[가-힣]{{1,3}}){{0,3}}"
)

_KEYS = re.compile(
    r"[\"'](?P<key>[A-Za-z_가-힣 .-]{2,40})[\"']\s{0,3}:\s{0,3}(?:\[\s{0,3})?[\"'](?P<value>[^\"'\n]{2,60})[\"']"
    r"|<(?P<tag>[A-Za-z_가-힣]{2,24})>(?P<inside>[^<\n]{2,60})</"
)
_NAME_KEY = re.compile(
    r"(?:^|[_. -]|(?<=[a-z]))(?:name|nm|fullname|username|surname|author|owner|manager|contact|customer"
    r"|client|patient|sender|receiver|recipient|applicant"
    r"|employee|member|student|teacher|doctor|holder|assignee|reporter|person|guardian|payee|payer|signer"
    r"|attendee|participant)s?$"
    r"|(?:성명|이름|성함|담당자|신청인|신청자|예금주|수취인|수령인|고객|환자|회원|작성자|대표자|보호자"
    r"|계약자|명의자|받는사람|보내는사람|사용자|직원|학생)(?:명|이름|성명)?$",
    re.IGNORECASE,
)
_NO_NAME_KEY = re.compile(
    r"(?:file|host|class|product|item|model|tool|function|column|table|field|event|group|team|company|org"
    r"|bank|brand|domain|path|project|package|"
    r"service|server|city|country|store|shop|school|dept|department|display|type|key|tag|style|font|image"
    r"|theme|schema|db|database|branch|repo|"
    r"method|param|variable|property|role|status|job|task|step|node|region|zone|cluster|image|plan|category"
    r"|상품|제품|회사|파일|건물|은행|업체|기관|학교|부서|팀)[_. -]?(?:name|nm|명|이름)$",
    re.IGNORECASE,
)
# Not `search`: a lone word in small letters is no name.
_PERSON_VALUE = re.compile(r"(?=.*[A-Z가-힣]|[a-z]+ [a-z])[A-Za-z가-힣 .,'·()-]{2,60}")


def names(text: str) -> Iterator[Span]:
    """Spans, overlapping or not."""
    for hit in _SURE_VALUE.finditer(text):
        value, (start, end) = hit["value"], hit.span("value")
        if _LABEL_WORD.match(value) and not name_shaped(_without_josa(value)):
            continue
        if value.isascii() and not value[0].isupper():
            continue
        # A list of labels looks the same: 성명, 전화, 주소 below each other.
        if hit["line"] and not name_shaped("".join(value.split())):
            continue
        if _OF_THINGS.search(text, max(0, hit.start() - 12), hit.start()):
            continue
        if len(value) > 5 and not hit["sign"] and not value.isascii() and not _SPACED_VALUE.fullmatch(value):
            # Prose goes on behind it: 성함이 황순금이신데 보호자는.
            value = value.split()[0]
            end = start + len(value)
        if " " not in value and "\n" not in value:
            end = start + len(_without_josa(value))
        bracket = _OTHER_SPELLING.match(text, end)
        yield start, bracket.end() if bracket else end, "PERSON"
    for hit in _LIKELY_VALUE.finditer(text):
        value = hit["value"]
        signed = any(sign in hit["sign"] for sign in ":=|")
        if value.isascii():
            if signed:
                yield *hit.span("value"), "PERSON"
        elif value not in NO_NAMES and (
            name_shaped(value.replace(" ", "").replace("\n", "")) and (signed or len(value) > 2)
        ):
            yield *hit.span("value"), "PERSON"
    yield from _titled(text)
    for hit in _SPACED_NAME.finditer(text):
        if hit["title"] or name_shaped("".join(hit["value"].split())):
            yield *hit.span("value"), "PERSON"
    for pattern in (_WHOLE_CELL, _BROKEN):
        for hit in pattern.finditer(text):
            value = "".join(hit["value"].split())
            if len(value) > 2 and name_shaped(value) and value not in NO_NAMES:
                yield *hit.span("value"), "PERSON"
    for hit in _ANONYMOUS.finditer(text):
        yield *hit.span(), "PERSON"
    for pattern in (_REAL_NAME, _WITH_AGE):
        for hit in pattern.finditer(text):
            yield *hit.span("value"), "PERSON"
    for pattern in (_HAN, _INITIALS):
        for hit in pattern.finditer(text):
            yield *hit.span(), "NAME"
    for hit in _POST_AND_LATIN.finditer(text):
        yield *hit.span("value"), "PERSON"
    for hit in _VIET.finditer(text):
        yield *hit.span(), "PERSON"
    yield from in_keys(text)


def _titled(text: str) -> Iterator[Span]:
    for hit in _BEFORE_TITLE.finditer(text):
        value = hit["value"]
        if value in NO_NAMES or value + hit["title"] in NO_NAMES:
            continue
        if len(value) == 1:
            # 김 과장 and 김씨, but not 이 사장 of many, nor 이모, 고모, 정교수.
            if hit["gap"] or (hit["title"] in ("씨",)):
                yield (
                    hit.start("value"),
                    hit.end("title")
                    if hit["gap"] and hit["title"] not in ("씨", "군", "양", "모")
                    else hit.end("value"),
                    "PERSON",
                )
        elif name_shaped(value) and (hit["gap"] or len(hit["title"]) > 1 or hit["title"] in "씨님"):
            yield *hit.span("value"), "PERSON"
    for hit in _HONOURED.finditer(text):
        value = hit["value"]
        if value in _TITLE_WORDS or value in _KIN or value in NO_NAMES:
            continue
        if "씨" in hit["how"] or all(char in GIVEN for char in value):
            yield *hit.span("value"), "PERSON"
    for hit in _ROLE.finditer(text):
        if name_shaped(hit["value"]) and hit["value"] not in NO_NAMES:
            yield *hit.span("value"), "PERSON"
    for hit in _SECOND_WORD.finditer(text):
        value, start = hit["value"], hit.start()
        # Two syllables are too often a word, save at the end of a field.
        long = len(value) > 2 or text[hit.end() : hit.end() + 1] in _FIELD_ENDS
        if not long or not name_shaped(value) or value in NO_NAMES:
            continue
        if _TITLE_BEFORE.search(text, max(0, start - _LONGEST_TITLE), start):
            yield *hit.span("value"), "PERSON"


def in_keys(text: str) -> Iterator[Span]:
    """Values of JSON and XML under keys that name a person."""
    for hit in _KEYS.finditer(text):
        key, group = (hit["key"], "value") if hit["key"] else (hit["tag"], "inside")
        if _NAME_KEY.search(key) and not _NO_NAME_KEY.search(key) and _PERSON_VALUE.fullmatch(hit[group]):
            yield *hit.span(group), "PERSON"


def _without_josa(word: str) -> str:
    """A word of Hangul without the particle behind a name; as it is when only a syllable would remain."""
    if len(word) <= 3 and name_shaped(word):
        return word
    end = _JOSA_END.search(word)
    return word[: end.start()] if end and end.start() > 1 else word
