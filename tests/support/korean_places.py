"""Korean addresses, by road name and by lot, down to the flat."""

from __future__ import annotations

from random import Random

# Province or metropolis (in full and as people shorten it), and a district, a road and a neighbourhood of each.
_PLACES = (
    (("서울특별시", "서울시", "서울"), "강남구", ("테헤란로", "봉은사로"), ("역삼동", "논현동")),
    (("서울특별시", "서울시", "서울"), "마포구", ("월드컵북로", "양화로"), ("상암동", "연남동", "망원동")),
    (("서울특별시", "서울시", "서울"), "송파구", ("석촌호수로", "올림픽로"), ("잠실동", "문정동")),
    (("부산광역시", "부산시", "부산"), "해운대구", ("해운대해변로", "센텀중앙로"), ("우동", "좌동")),
    (("대구광역시", "대구"), "수성구", ("달구벌대로", "동대구로"), ("범어동", "지산동")),
    (("인천광역시", "인천"), "연수구", ("송도과학로", "컨벤시아대로"), ("송도동", "옥련동")),
    (("광주광역시", "광주"), "서구", ("상무중앙로", "운천로"), ("치평동", "쌍촌동")),
    (("대전광역시", "대전"), "유성구", ("대학로", "엑스포로"), ("봉명동", "궁동")),
    (("경기도", "경기"), "성남시 분당구", ("정자일로", "판교역로"), ("정자동", "삼평동")),
    (("경기도", "경기"), "수원시 영통구", ("광교중앙로", "봉영로"), ("이의동", "영통동")),
    (("강원특별자치도", "강원도"), "원주시", ("서원대로", "북원로"), ("무실동", "단계동")),
    (("충청북도", "충북"), "청주시 흥덕구", ("가로수로", "직지대로"), ("가경동", "복대동")),
    (("전북특별자치도", "전라북도"), "전주시 완산구", ("효자로", "홍산로"), ("효자동2가", "서신동")),
    (("경상남도", "경남"), "창원시 성산구", ("중앙대로", "원이대로"), ("상남동", "용호동")),
    (("제주특별자치도", "제주도"), "제주시", ("노형로", "연북로"), ("노형동", "이도이동")),
    (("세종특별자치시", "세종시"), "", ("한누리대로", "도움3로"), ("나성동", "어진동")),
)
_BUILDINGS = ("푸른마을아파트", "래미안", "한빛오피스텔", "현대아파트", "자이", "미래타워", "은하빌라")


def korean_address(rng: Random) -> str:
    names, district, roads, neighbourhoods = rng.choice(_PLACES)
    head = f"{rng.choice(names)} {district}".rstrip()
    if rng.random() < 0.6:
        head += f" {rng.choice(roads)}"
        if rng.random() < 0.3:
            head += f" {rng.randrange(2, 90)}번길"
        head += f" {rng.randrange(1, 600)}"
        head += f"-{rng.randrange(1, 40)}" if rng.random() < 0.25 else ""
    else:
        head += f" {rng.choice(neighbourhoods)} {rng.randrange(1, 1500)}"
        head += f"-{rng.randrange(1, 60)}" if rng.random() < 0.8 else "번지"
    return head + _unit(rng)


def _unit(rng: Random) -> str:
    shape = rng.random()
    if shape < 0.3:
        return ""
    flat = f"{rng.randrange(101, 120)}동 {rng.randrange(1, 25)}{rng.randrange(1, 9):02d}호"
    if shape < 0.6:
        return f", {flat}"
    if shape < 0.85:
        return f" {rng.choice(_BUILDINGS)} {flat}"
    return f", {rng.randrange(2, 20)}층"
