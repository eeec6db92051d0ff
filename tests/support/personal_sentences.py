"""Sentences that people write personal data into, Korean and English."""

from __future__ import annotations

from random import Random

PARTICLES = ("은", "는", "이", "가", "을", "를", "에게", "께서", "의", "로", "으로", "와", "과", "도", "만")
NAME_PARTICLES = (
    *PARTICLES,
    *("에게서", "한테", "께", "님", "님이", "님께", "씨", "씨가", "씨의", " 씨는", " 님은", "이랑", "까지"),
)
_ENDS = (
    *("입니다.", "이에요.", "이고 확인 바랍니다.", "인데 맞나요?", "로 바꿔 주세요."),
    *(" 맞습니다.", "예요, 처리해 주세요."),
)
_NAME_ENDS = (" 다시 확인해 주세요.", " 적어 두었습니다.", " 오늘 왔어요.", "")

# What stands before a value of a kind, in Korean and in English. The value follows at once.
_KOREAN: dict[str, tuple[str, ...]] = {
    "resident number, old form": ("주민등록번호는 ", "본인 확인용 주민번호 ", "제 주민번호가 "),
    "resident number, new form": ("아이 주민등록번호는 ", "신생아 등록번호 ", "가족 주민번호가 "),
    "foreigner number": ("외국인등록번호는 ", "체류자 등록번호 ", "외국인 직원 번호가 "),
    "business number": ("사업자등록번호는 ", "세금계산서 발행용 사업자번호 ", "거래처 사업자번호가 "),
    "corporate number": ("법인등록번호는 ", "등기부의 법인번호 ", "계약 상대의 법인등록번호가 "),
    "passport, old form": ("여권번호는 ", "항공권 예약용 여권 ", "만료된 여권번호가 "),
    "passport, new form": ("새 여권번호는 ", "차세대 여권 ", "발급받은 여권번호가 "),
    "driver licence": ("운전면허번호는 ", "면허증 번호 ", "렌터카 예약용 면허번호가 "),
    "Korean mobile": ("제 휴대폰은 ", "급하시면 ", "연락처 ", "배송 기사님께 알려 줄 번호는 "),
    "Korean landline": ("사무실 전화는 ", "대표번호 ", "집 전화가 "),
    "Korean internet telephone": ("인터넷 전화는 ", "상담 번호 ", "안심번호가 "),
    "Korean bank account": (
        "국민은행 계좌 ",
        "환불은 신한은행 ",
        "입금 계좌는 카카오뱅크 ",
        "우리은행 급여 계좌가 ",
        "농협 ",
        "하나은행 예금주 확인 부탁드려요. 계좌번호 ",
    ),
    "Korean address": ("배송지는 ", "집 주소 ", "이사한 곳이 ", "방문할 곳은 "),
    "vehicle plate": ("차량번호는 ", "주차 등록할 차 ", "사고 차량이 "),
    "Korean name": ("담당자는 ", "어제 ", "신청인 ", "환자 ", "우리 팀 ", "계약서에 적힌 사람은 ", "결재는 "),
    "mail address": ("메일은 ", "회신 주소 ", "가입한 이메일이 "),
    "intranet mail address": ("사내 메일은 ", "내부 계정 ", "보고는 "),
    "card": ("카드번호는 ", "결제 카드 ", "분실한 카드가 "),
    "IBAN": ("해외 송금 계좌는 ", "수취인 IBAN ", "독일 지사 계좌가 "),
    "US social security number": ("미국 사회보장번호는 ", "SSN ", "현지 직원 SSN이 "),
    "IPv4 address": ("접속 IP는 ", "서버 주소 ", "차단할 주소가 "),
    "IPv6 address": ("IPv6 주소는 ", "로그에 남은 주소 ", "허용할 주소가 "),
    "US telephone": ("미국 연락처는 ", "뉴욕 지사 ", "현지 번호가 "),
    "UK telephone": ("영국 연락처는 ", "런던 사무소 ", "현지 번호가 "),
}
_ENGLISH: dict[str, tuple[str, ...]] = {
    "resident number, old form": ("His Korean resident number is ", "RRN: "),
    "resident number, new form": ("The child's resident number is ", "RRN: "),
    "foreigner number": ("My alien registration number is ", "ARC no. "),
    "business number": ("The supplier's business number is ", "BRN "),
    "corporate number": ("The corporate registration number is ", "Registered as "),
    "passport, old form": ("My passport is ", "Passport no. "),
    "passport, new form": ("My new passport is ", "Passport no. "),
    "driver licence": ("My Korean licence is ", "Licence no. "),
    "Korean mobile": ("Call me on ", "My number in Seoul is "),
    "Korean landline": ("The office line is ", "Ring "),
    "Korean internet telephone": ("The support line is ", "Ring "),
    "Korean bank account": ("Please wire it to Kookmin Bank ", "My Shinhan account is "),
    "Korean address": ("Ship it to ", "She lives at "),
    "vehicle plate": ("The car is ", "Plate "),
    "mail address": ("Write to ", "My email is "),
    "intranet mail address": ("Forward it to ", "The internal account is "),
    "card": ("Charge my card ", "The card on file is "),
    "IBAN": ("Transfer the rent to ", "Our IBAN is "),
    "US social security number": ("My SSN is ", "Social security number "),
    "IPv4 address": ("The request came from ", "Block "),
    "IPv6 address": ("The request came from ", "Allow "),
    "US telephone": ("Call me back at ", "Her cell is "),
    "UK telephone": ("Call me back on ", "The London desk is "),
}
_ENGLISH_ENDS = (".", ", please check it.", " and nothing else.", " - is that right?", "; thanks!")


def around(rng: Random, kind: str, value: str) -> tuple[str, str]:
    """What stands before and after `value` in a sentence of its kind."""
    english = _ENGLISH.get(kind)
    if english is not None and rng.random() < 0.3:
        return rng.choice(english), rng.choice(_ENGLISH_ENDS)
    before = rng.choice(_KOREAN[kind])
    if kind == "Korean name":
        return before, rng.choice(NAME_PARTICLES) + rng.choice(_NAME_ENDS)
    after = rng.choice(_ENDS) if rng.random() < 0.5 else rng.choice(PARTICLES) + " 확인해 주세요."
    return before, after
