"""Made-up business text of about 500 tokens, a new one every time, Korean or English. Nobody in it exists."""

from __future__ import annotations

import random

KOREAN, ENGLISH = "Korean", "English"
CHARS = {KOREAN: 900, ENGLISH: 2_000}
"""About 500 tokens."""

_SURNAMES = "김이박최정강조윤장임한오서신권황안송류홍"
_GIVEN = "민서지우도윤하준서연예은시우주원지호수빈건우다은현우유진성민"
_PLACES = ("서울시 강남구", "부산시 해운대구", "대전 유성구", "수원시 팔달구", "전주시 완산구", "강릉시")
_KOREAN = (
    "안녕하세요, 지난달 상담 때 말씀드린 계약서 초안을 보내 드립니다.",
    "{name} 과장은 다음 주 화요일 오후 3시에 {place} 사무실에서 회의를 열 예정입니다.",
    "담당자 연락처는 {phone}이고 이메일은 {mail}입니다.",
    "이번 분기 매출은 전년 대비 {share}% 늘어난 {amount}원으로, 자세한 내용은 첨부한 표를 참고해 주세요.",
    "{name}님께서 요청하신 환불은 영업일 기준 5일 안에 {account} 계좌로 처리됩니다.",
    "재고가 부족한 품목은 다음 달 초에 다시 들어올 것으로 보이며, 그 전에는 대체 상품을 안내해 드리고 있습니다.",
    "회의록 초안은 {name} 대리가 정리해서 금요일까지 공유하겠습니다.",
    "고객이 남긴 의견을 보면 배송 속도와 포장 상태에 대한 만족도가 가장 높았습니다.",
    "새로운 시스템은 {year}년 {month}월부터 {place} 지점에 먼저 적용하고, 결과를 본 뒤에 넓혀 갈 계획입니다.",
    "문의 사항이 있으시면 언제든지 답장해 주시기 바랍니다.",
)
_FIRST = (
    "Anna",
    "Peter",
    "Maria",
    "James",
    "Sofia",
    "Daniel",
    "Laura",
    "Thomas",
    "Julia",
    "Robert",
    "Nina",
    "Paul",
)
_LAST = (
    "Marlowe",
    "Keller",
    "Whitfield",
    "Novak",
    "Sanders",
    "Lindqvist",
    "Barnes",
    "Okafor",
    "Hughes",
    "Romano",
)
_TOWNS = ("Bristol", "Portland", "Denver", "Leeds", "Austin", "Cardiff")
_FIRMS = ("Northgate Logistics", "Harbour Mills", "Brightwater Ltd", "Cobalt & Sons", "Fernhill Group")
_ENGLISH = (
    "Thank you for your order; the parcel left our warehouse on Monday and should arrive within five working days.",
    "{name} from {firm} will visit the {town} office next week to go through the draft contract.",
    "If anything is unclear, call {phone} or write to {mail} and quote the order number.",
    "Revenue rose by {share} percent to ${amount} in the last quarter, mostly thanks to repeat customers.",
    "The refund that {name} asked for has been approved and will reach the account within a week.",
    "Several products are out of stock at the moment, and we expect the next delivery early next month.",
    "According to the minutes, {name} agreed to send the revised figures to {firm} before Friday.",
    "Customers who answered the survey were happiest with delivery times and with how well things were packed.",
    "The new system goes live in {town} in {month} {year} and will be rolled out elsewhere if the results are good.",
    "Please reply to this message if you would like to change the date of the appointment.",
)
_MONTHS = ("January", "March", "April", "June", "August", "October", "November")


class Texts:
    """Texts of one language; the same seed gives the same texts."""

    def __init__(self, language: str, seed: int = 20_261_130) -> None:
        self._language = language
        self._draw = random.Random(f"{language} {seed}")

    def next(self) -> str:
        """The next text, of `CHARS` characters."""
        length = CHARS[self._language]
        text = ""
        while len(text) < length:
            text += self._sentence() + " "
        return text[:length]

    def _sentence(self) -> str:
        draw = self._draw
        digits = f"{draw.randrange(10_000):04}-{draw.randrange(10_000):04}"
        common = {
            "share": f"{draw.uniform(1, 20):.1f}",
            "amount": f"{draw.randrange(1_000_000, 90_000_000):,}",
            "year": draw.randrange(2024, 2028),
            "mail": f"team{draw.randrange(1_000)}@example.com",
        }
        if self._language == KOREAN:
            name = draw.choice(_SURNAMES) + draw.choice(_GIVEN) + draw.choice(_GIVEN)
            return draw.choice(_KOREAN).format(
                **common,
                name=name,
                place=draw.choice(_PLACES),
                phone=f"010-{digits}",
                account=f"110-{draw.randrange(100, 1_000)}-{draw.randrange(100_000, 1_000_000)}",
                month=draw.randrange(1, 13),
            )
        return draw.choice(_ENGLISH).format(
            **common,
            name=f"{draw.choice(_FIRST)} {draw.choice(_LAST)}",
            firm=draw.choice(_FIRMS),
            town=draw.choice(_TOWNS),
            phone=f"212-555-{draw.randrange(10_000):04}",
            month=draw.choice(_MONTHS),
        )
