"""Korean addresses: by road and by lot, with what follows down to the flat; behind a label, to the end of the field."""

from __future__ import annotations

import re
from collections.abc import Iterator

from weighbridge.masking.entities import Span

_PROVINCE = (
    r"(?:서울(?:특별시|시)?|부산(?:광역시|시)?|대구(?:광역시|시)?|인천(?:광역시|시)?|광주(?:광역시|시)?"
    r"|대전(?:광역시|시)?"
    r"|울산(?:광역시|시)?|세종(?:특별자치시|시)?|경기도?|강원(?:특별자치도|도)?|충청?[남북]도?|충북|충남"
    r"|전라?[남북]도?"
    r"|전북(?:특별자치도)?|전남|경상?[남북]도?|경북|경남|제주(?:특별자치도|도|시)?)"
)
_GAP = r"(?:[ \t]{1,3}|[ \t]{0,2}\n[ \t]{0,4})"
# Signs that people put between the parts of an address instead of blanks.
_SIGN = r"[ \t]?[-/_·.,][ \t]?"
_LINK = rf"(?:{_GAP}|{_SIGN})"
_FLAT = r"[ \t]?(?:동|호|층)"
_DISTRICT = r"[가-힣]{1,5}(?:시|군|구)"
_TOWN = r"[가-힣0-9]{1,8}(?:읍|면|동|가|리)"
_ROAD = r"[가-힣][가-힣0-9·.]{0,14}?(?:대로|로|길)(?:[- ·_/.]?\d{1,4}(?:번|가|나|다)?[가-힣]?길)?"
# Few begin with a number: 1순환로, 4.19로. As those of 2위로 3 would, they need a place before them.
_NUMBER_ROAD = (
    r"(?<=[가-힣][시군구읍면동]\s)\d{1,2}(?:[.·]\d{1,2})?(?:순환|공단|산단)?(?:대로|로|길)"
    r"(?:[- ·_/.]?\d{1,4}(?:번|가|나|다)?[가-힣]?길)?"
)
# Not an amount: 앞으로 3가지, 대로 5번.
_COUNTED = (
    r"(?:년|월|일|원|명|개|%|시간|분|호선|km|m|가지|번(?![지길])|회|배|차례|위|등|점|살|세|장|권|편|쪽|주|달|박|인(?!데|지|가|입)|팀|곳"
    r"|만(?=[ ]?(?:[원명개대건평톤\d]|달러))|천|억)"
)
_NUMBER = (
    # The first is the third part of a street, as in 종로3가 12.
    rf"(?:\d{{1,2}}가{_GAP}?(?=\d))?(?:지하[ ]?)?(?:산[ ]?)?\d{{1,5}}(?:[-_/·]\d{{1,5}}(?!\d|{_FLAT}))?(?:번지)?"
    rf"(?!\d|[-.]\d(?!\d{{0,4}}{_FLAT})|{_COUNTED})"
)
# Run together there is nothing between the number and the one behind it either.
_LONG_NUMBER = rf"(?:지하)?산?\d{{1,9}}(?:번지)?(?!\d|{_COUNTED})"
_UNIT = (
    r"(?:제?[ ]?[0-9A-Z가-하]{1,5}[ ]?동(?![가-힣])|제?[ ]?[A-Z]?\d{1,5}[ ]?(?:-\d{1,4})?호(?!선)|(?:지하"
    r"|지상|B)?[ ]?\d{1,3}[ ]?층|\d{1,3}[ ]?단지"
    r"|\d{1,2}차|\d{1,4}-\d{1,5}(?!\d|-)|\([^()\n]{1,40}\)"
    r"|[가-힣A-Za-z0-9]{0,16}(?:아파트|빌라|빌딩|타워|센터|오피스텔|맨션|주택|주공|단지|마을|하우스|프라자"
    r"|플라자|스퀘어|캐슬|팰리스|자이|래미안"
    r"|푸르지오|더샵|아이파크|힐스테이트|편한세상|상가|시장|회관|사옥|청사|본관|별관|기숙사|원룸|고시원|연립"
    r"|파크|뷰|힐|시티|관)(?:[ ]?[A-Z가-하0-9]{1,4}동)?)"
)
_DETAIL = re.compile(rf"(?:,?[ \t]{{0,2}}|,?{_SIGN})(?:\n[ \t]{{0,4}}(?:[-/_·.][ \t]?)?)?{_UNIT}", re.ASCII)
# One word between the number and a unit, or before the end of a field: the name of a house.
_HOUSE = re.compile(
    rf",?[ \t]{{1,2}}(?:[가-힣A-Za-z0-9·]{{2,16}}[ ]){{0,2}}?[가-힣A-Za-z0-9·]{{1,16}}"
    rf"(?=[ ]{{0,2}}(?:{_UNIT}|\n|$|[,;|/)\"]))"
    rf"|{_SIGN}[가-힣A-Za-z0-9]{{1,16}}(?={_SIGN}(?:\n[ \t]{{0,4}})?{_UNIT})"
    r"|[가-힣A-Za-z]{1,16}(?=\d{1,4}동[ ]?\d{1,4}호)",
    re.ASCII,
)
_ADDRESS = re.compile(
    rf"(?<![가-힣])(?:{_PROVINCE}{_LINK}?)?(?:{_DISTRICT}{_LINK}?){{0,2}}(?:{_TOWN}{_LINK}){{0,2}}"
    rf"(?:(?P<road>{_ROAD}|{_NUMBER_ROAD}){_LINK}?{_NUMBER}|{_TOWN}{_LINK}{_NUMBER}|{_TOWN}[ ]?{_NUMBER})"
)
_TOGETHER = re.compile(
    rf"(?<![가-힣]){_PROVINCE}(?:[가-힣]{{1,5}}(?:시|군|구)){{0,3}}[가-힣0-9·]{{1,14}}?(?:로|길|읍|면|동(?:\d{{1,2}}가)?|리|가)"
    rf"(?:\d{{1,4}}번?길)?{_LONG_NUMBER}"
)
# Without a number the places still tell: three or more of them in a row.
_PLACES = re.compile(
    rf"(?<![가-힣]){_PROVINCE}{_GAP}(?:{_DISTRICT}{_GAP}){{1,2}}(?:{_TOWN}(?:{_GAP}{_TOWN})?"
    rf"|{_ROAD})(?![가-힣]{{3}})"
    rf"|(?<![가-힣]){_PROVINCE}{_GAP}{_DISTRICT}(?![가-힣]{{3}})"
)
_LABEL = re.compile(
    r"(?:주[ ]{0,4}소(?:지)?|거주지|거소|소재지|배송지|배송처|배달지|도착지|출발지|수령지|등록기준지|본적지?"
    r"|자택|현장|장소|사업장|근무지|위치|address|addr)"
    r"(?:[ ]?\([^()\n]{1,12}\))?[ \t]{0,3}(?:[:=]|은|는|이|가"
    r"|\n)[ \t]{0,3}\"?(?P<value>[가-힣A-Za-z0-9][^\n\t|;\"]{3,99})",
    re.IGNORECASE,
)
# Behind a whole address: the label of another field, a verb, a particle.
BEHIND = (
    r"(?i:,?[ ](?:연락처|전화|휴대|핸드폰|성명|이름|담당|우편|이메일|메일|계좌|생년|주민|tel"
    r"|fax|phone|e-?mail)"
    r"|(?:[ ]?입니다|이에요|예요|이고|이며|인데|이라|으로|에서|까지|에 (?=[가-힣])|로 (?=[가-힣])|에요|임[.,]))"
)
_FIELD_ENDS = re.compile(rf"[ ]{{2,}}|[ ]?/[ ]|{BEHIND}|\.(?:[ ]|$)|, ?(?=[가-힣]{{2,6}}[ ]?:)")
_PART_OF_ADDRESS = re.compile(rf"{_PROVINCE}|{_DISTRICT}[ ]|(?:읍|면|동|리|로|길|가)[ ]?\d")
_FAR = 160


def addresses(text: str) -> Iterator[Span]:
    """Spans, overlapping or not."""
    for hit in _ADDRESS.finditer(text):
        start, end = hit.span()
        if (hit["road"] and _NO_ROAD.search(hit["road"])) or not _tells(text, start, hit.group()):
            continue
        yield start, _extended(text, end), "ADDRESS"
    for hit in _TOGETHER.finditer(text):
        yield hit.start(), _extended(text, hit.end()), "ADDRESS"
    for hit in _PLACES.finditer(text):
        yield *hit.span(), "ADDRESS"
    for hit in _LABEL.finditer(text):
        start, end = hit.span("value")
        if stop := _FIELD_ENDS.search(text, start, end):
            end = stop.start()
        if end > start and _PART_OF_ADDRESS.search(text, start, end):
            yield start, end, "ADDRESS"


def _tells(text: str, start: int, found: str) -> bool:
    """A road or a town with a number alone is an address only behind another place; `바로 3` is none."""
    return _BROAD.match(found) is not None or _BEFORE.search(text, max(0, start - 24), start) is not None


_BROAD = re.compile(
    rf"{_PROVINCE}{_LINK}|{_DISTRICT}{_LINK}?[가-힣]|[가-힣]{{1,6}}(?:읍|면|동){_LINK}"
    rf"|[가-힣0-9]{{2,14}}(?:대로|번길|로|길)[ ]?(?:\d{{1,4}}(?:번|가|나|다)?[가-힣]?길[ ]?)?\d"
)
_NO_ROAD = re.compile(r"(?:으로|[바별서새따때주]로|스스로|그대로|제로|대로대로)\Z")
_BEFORE = re.compile(r"(?:주소|거주|소재|배송|위치|자택|장소|살고|사는|본적|이사)")


def _extended(text: str, end: int) -> int:
    far = min(len(text), end + _FAR)
    while end < far:
        further = _DETAIL.match(text, end) or _HOUSE.match(text, end)
        if further is None or further.end() == end:
            break
        end = further.end()
    return end
