"""Korean numbers that have no form of their own: spoken, with words between, or told by what stands before them.

Text is folded. Every quantifier is bounded, so that hostile input costs linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from weighbridge.masking.entities import Span

_F = re.ASCII | re.IGNORECASE

# Digits as people say or spell them, with what they put between.
_SAID = "공영빵일이삼사오육륙칠팔구"
_NATIVE = "하나|둘|셋|넷|다섯|여섯|일곱|여덟|아홉|열"
_SAID_BETWEEN = r"(?:[ \t,./·~-]|다시|대시|에다|에|의|국번|국|번|하고|그리고|\n){0,3}"
_SPOKEN = re.compile(
    rf"(?:[{_SAID}〇零二三四五六七八九0-9]|{_NATIVE})"
    rf"(?:{_SAID_BETWEEN}(?:[{_SAID}〇零二三四五六七八九0-9]|{_NATIVE})){{6,40}}"
)
_SAID_DIGIT = re.compile(rf"[{_SAID}〇零二三四五六七八九]|{_NATIVE}")
_FEW_SAID = 3
# A counter glued to the last digit, and the words that a run of these syllables may begin in.
_WORDS_OF_DIGITS = re.compile(r"(?:이사|사이|오이|구이|이공|이오|삼일|오일|공사|이구){1,8}")

# Groups of digits with particles or words between: 010 번 1234 번 5678, 900101 다시 1234567.
_WORD = (
    r"(?:번에|번지|국번|국에|국|번|에서|에다|에|의|다시|대시|하이픈|빼기|작대기|짝대기|바|점|하고|이고"
    r"|그리고|그 ?다음에?(?:는|은)?"
    r"|다음에?|뒤에?|뒷자리(?:는|가)?|뒷번호(?:는|가)?|끝자리(?:는|가)?|은|는|요|이요|이에요)"
)
_BETWEEN = (
    rf"(?:[ \t,.·~/()-]{{0,3}}{_WORD}[ \t,.·~/()-]{{0,3}}(?:{_WORD}[ \t,.·]{{0,2}})?"
    rf"|[ \t]?[-.,~·/]{{0,2}}[ \t]?\n?[ \t]{{0,4}})"
)
_WITH_WORDS = re.compile(rf"(?<![\d.,])\d{{1,8}}(?:{_BETWEEN}\d{{1,8}}){{1,15}}(?!\d)", _F)
_HANGUL = re.compile("[가-힣]")
# Amounts and dates look like this too: 3번 12번, 5월에 30; a number is nine digits or more.
_FEW_DIGITS = 9

_HALVES = re.compile(
    r"앞 ?(?:6|여섯)? ?자리(?: ?번호)?[^\d\n]{0,8}(?P<front>\d{6})(?!\d)|"
    r"뒷? ?(?:7|일곱)? ?자리(?: ?번호)?[^\d\n]{0,8}(?P<back>\d{4,7})(?!\d)"
)

_SEP = r"(?:[ \t]{0,3}(?:은|는|이|가)?[ \t]{0,3}[:=#|]?[ \t]{0,3}(?:\n[ \t]{0,4})?[\"'\[(<]{0,2})"
# Between a label and its sign stand things in brackets: 처방전 번호(의원):
_NOTE = r"(?:[ \t]?[(\[][^()\[\]\n]{1,16}[)\]])?"
_VALUE = r"(?P<value>[A-Z0-9](?:[A-Z0-9]|[-_/.](?=[A-Z0-9])){3,39})(?![A-Z0-9])"

_ID_LABEL = (
    r"(?:사원|직원|사|임용|행원|교직원|공무원|회원|고객|환자|수진자|차트|병록|진료|등록|병원 ?등록|처방전?"
    r"|교부|조제|검체|검진|주문|예약|접수|"
    r"수험|응시|지원|군|증권|보험|계약|송장|운송장|배송|결제|승인|거래|영수증|상담|문의|티켓|민원|청구|사건"
    r"|관리|가입자?|단말|기기|일련|식별|"
    r"인증|확인|개인|자산|대출|여신|카드|멤버십|마일리지|포인트|쿠폰|수급자|장애인|복지|자격증?|면허|허가"
    r"|등기|통장|계좌|보호대상|신고|학|신청|발급"
    r"|출입증|방문증|사물함|입찰|세대|고유)(?:증|자|전)?[ _]?(?:식별[ ]?)?(?:번호|ID|아이디|No\.?|코드|#)"
    r"|(?:사번|학번|군번|수번|순번|면번|행번|아이디|계정)"
    r"|(?:employee|member|customer|patient|order|user|client|student|staff|account|booking|chart|policy"
    r"|claim)[ _-]?"
    r"(?:id|no\.?|number|#)"
)
_LABELLED: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "BRN",
        re.compile(
            rf"사업자[ ]?(?:등록)?[ ]?(?:번호"
            rf"|no)?{_NOTE}{_SEP}(?P<value>\d{{3}}[- ]?\d{{2}}[- ]?\d{{5}})(?!\d)",
            _F,
        ),
    ),
    (
        "CRN",
        re.compile(
            rf"법인[ ]?(?:등록)?[ ]?(?:번호|no)?{_NOTE}{_SEP}(?P<value>\d{{6}}[- ]?\d{{7}})(?!\d)", _F
        ),
    ),
    (
        "LICENSE",
        re.compile(
            rf"면허(?:증)?[ ]?(?:번호|no)?{_NOTE}{_SEP}"
            r"(?P<value>(?:[가-힣]{2,4}[ -]?)?\d{2}[- ]?(?:\d{2}[- ]?)?\d{6}[- ]?\d{2})(?!\d)",
            _F,
        ),
    ),
    (
        "HEALTH",
        re.compile(
            rf"(?:건강|의료|국민건강)[ ]?보험(?:증|카드)?[ ]?(?:증)?[ ]?(?:번호|no\.?)?{_NOTE}{_SEP}"
            r"(?P<value>\d[- ]?\d{10}|\d{8,12})(?!\d)",
            _F,
        ),
    ),
    (
        "PASSPORT",
        re.compile(
            rf"(?:여권|passport)[ ]?(?:번호|no\.?|number)?{_NOTE}{_SEP}(?P<value>[A-Z]{{1,2}}[ ]?\d{{7,8}}"
            rf"|[A-Z]\d{{3}}[A-Z]\d{{4}})",
            _F,
        ),
    ),
    (
        "PLATE",
        re.compile(
            rf"차(?:량|적)?[ ]?(?:등록)?[ ]?번호(?:판)?{_NOTE}{_SEP}"
            rf"(?P<value>(?:[가-힣]{{2}}[ ]?)?\d{{1,3}}[ ]?[가-힣][ ]?\d{{4}})(?!\d)",
            _F,
        ),
    ),
    ("ID", re.compile(rf"(?:{_ID_LABEL}){_NOTE}{_SEP}{_VALUE}", _F)),
)
_NO_ID = re.compile(r"[A-Z._/-]+\Z", _F)
# What may be letters alone.
_OF_LETTERS = re.compile(r"(?:ID|아이디|계정|username|login)[^A-Z]{0,8}\Z", re.IGNORECASE)

_BANK = (
    r"(?:(?:[A-Z]{2,4}|[가-힣]{1,6})(?:은행|뱅크|금고|증권|신협|농협|수협)|국민|신한|우리|하나|농협|기업"
    r"|수협|신협|우체국|카카오|토스|케이뱅크|새마을"
    r"|씨티|산업|대구|부산|광주|전북|경남|제주|제일|SC|KB|NH|IBK|KEB|MG|KDB|외환|축협|저축은행)"
)
_ACCOUNTS = re.compile(
    rf"(?<![가-힣A-Z])(?P<value>{_BANK}[ ]?(?:은행|뱅크)?(?:[ ]?(?:계좌"
    rf"|통장))?(?:[ ]?번호)?[ ]?[:)]?[ ]{{0,2}}"
    r"\d{2,6}(?:[- ]?\d{1,7}){1,4})(?![\d])",
    _F,
)
_PLATES = re.compile(
    r"(?:서울|부산|대구|인천|광주|대전|울산|세종|경기|강원|충북|충남|전북|전남|경북|경남"
    r"|제주)[ ]?\d{1,2}[ ]?[가-힣][ ]?\d{4}(?!\d)"
)
_REGION_LICENSE = re.compile(
    r"(?:서울|부산|대구|인천|광주|대전|울산|경기|경기남부|경기북부|강원|충북|충남|전북|전남|경북|경남"
    r"|제주)[ -]?\d{2}[- ]\d{6}[- ]\d{2}(?!\d)"
)
_POSTAL = re.compile(
    r"(?:우편[ ]?번호|(?<![가-힣])우|〒|zip(?: ?code)?)[ ]?[:)]?[ ]?\(?(?P<value>\d{5}|\d{3}-\d{3})(?!\d)"
    r"|(?P<bare>\(\d{5}\))",
    _F,
)
_AGES = re.compile(
    r"(?<![\d.,])(?:만[ ]?)?\d{1,3}[ ]?(?:세(?![기대트션팅금율계])|살)"
    r"|(?<![\d.,가-힣])만[ ]?\d{1,3}(?=\))"
    r"|(?<=[^A-Za-z][MF][/ ,])\d{1,3}(?:y|yo|세)?(?![\d.])|(?<![\d.,])\d{1,3}[ ]?(?:y/o|yo|y)(?![a-z])"
    r"|(?:나이|연령)[은는]?[: ]{1,3}(?P<value>(?:만[ ]?)?\d{1,3}(?:세|살)?)"
    r"|(?<=\()\d{1,3}(?=[·,/ ]{0,2}(?:남|여|세))|(?<=[가-힣A-Z]\()\d{2}(?=\))"
)
_BIRTHS = re.compile(
    r"(?<!\d)(?:\d{4}|\d{2})년(?:[ ]?\d{1,2}월)?(?:[ ]?\d{1,2}일)?[ ]?생|(?<!\d)\d{6}(?=[ ]?생)"
    r"|(?<!\d)\d{2}[.-]\d{1,2}[.-]\d{1,2}[. ]{0,2}생"
    r"|(?:생년월일|생일|출생일?|DOB|birth(?:day| ?date)?|date of birth)[^\d\n]{0,8}"
    r"(?P<value>(?:\d{4}|\d{2})[ .년/-]{0,3}\d{1,2}[ .월/-]{0,3}\d{1,2}일?|\d{6}|\d{8})(?!\d)",
    _F,
)
_BODY = re.compile(
    r"(?:키|신장|체중|몸무게)[ ]?[:는은이가]?[ ]?(?:약[ ]?)?(?P<value>\d{2,3}(?:\.\d)?[ ]?(?:cm|kg|센티"
    r"|킬로)?)(?!\d|\.\d)|(?P<pair>\d{3}(?:\.\d)?[ ]?cm[,/ ]{1,3}\d{2,3}(?:\.\d)?[ ]?kg)",
    _F,
)


def numbers(text: str) -> Iterator[Span]:
    """Spans, overlapping or not."""
    yield from _spoken(text)
    for hit in _WITH_WORDS.finditer(text):
        digits = sum(char.isdigit() for char in hit.group())
        if digits >= _FEW_DIGITS and _HANGUL.search(hit.group()):
            yield *hit.span(), "PHONE" if hit.group().startswith("0") else "NUM"
    for hit in _HALVES.finditer(text):
        group = "front" if hit["front"] else "back"
        yield *hit.span(group), "RRN"
    for entity, pattern in _LABELLED:
        for hit in pattern.finditer(text):
            if not _NO_ID.match(hit["value"]) or _OF_LETTERS.search(hit.group()[: -len(hit["value"])]):
                yield *hit.span("value"), entity
    for hit in _ACCOUNTS.finditer(text):
        if sum(char.isdigit() for char in hit["value"]) >= _FEW_DIGITS:
            yield *hit.span("value"), "ACCOUNT"
    for hit in _PLATES.finditer(text):
        yield *hit.span(), "PLATE"
    for hit in _REGION_LICENSE.finditer(text):
        yield *hit.span(), "LICENSE"
    for hit in _POSTAL.finditer(text):
        yield *hit.span("value" if hit["value"] else "bare"), "ADDRESS"
    for hit in _AGES.finditer(text):
        yield *(hit.span("value") if hit["value"] else hit.span()), "NUM"
    for hit in _BIRTHS.finditer(text):
        yield *(hit.span("value") if hit["value"] else hit.span()), "DATE"
    for hit in _BODY.finditer(text):
        yield *hit.span("value" if hit["value"] else "pair"), "NUM"


def spoken(text: str) -> Iterator[Span]:
    """Numbers told in words alone."""
    yield from _spoken(text)


def _spoken(text: str) -> Iterator[Span]:
    for hit in _SPOKEN.finditer(text):
        said = _SAID_DIGIT.findall(hit.group())
        if len(said) < _FEW_SAID or _WORDS_OF_DIGITS.fullmatch(hit.group()):
            continue
        phone = hit.group()[0] in "공영빵0〇零"
        yield *hit.span(), "PHONE" if phone else "NUM"
