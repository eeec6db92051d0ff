"""Proper nouns that name no person and no place a person could be found by, and that every other request holds."""

from __future__ import annotations

_WORDS = (
    "한국어 영어 일본어 중국어 프랑스어 독일어 스페인어 러시아어 한글 한자 파이썬 자바 자바스크립트 "
    "타입스크립트 코틀린 스위프트 러스트 고랭 리눅스 우분투 윈도우 윈도우즈 "
    "맥북 맥오에스 아이폰 아이패드 안드로이드 갤럭시 구글 네이버 다음 카카오톡 카톡 유튜브 인스타그램 "
    "페이스북 트위터 텔레그램 슬랙 노션 "
    "엑셀 워드 파워포인트 아웃룩 오피스 크롬 엣지 사파리 깃허브 깃랩 깃 도커 쿠버네티스 아마존 "
    "마이크로소프트 애플 삼성전자 넷플릭스 "
    "엔비디아 인텔 오라클 포스트그레스 레디스 카프카 스프링 리액트 장고 플라스크 텐서플로 파이토치 챗지피티 "
    "오픈에이아이 제미나이 클로드 "
    "위키백과 위키피디아 나무위키 코로나 와이파이 블루투스 인터넷 피디에프 크리스마스 추석 설날 올림픽 "
    "월드컵 국회 청와대 지구 태양 "
    "사번 우편번호 쿼리 디버깅 리팩토링 백엔드 프론트엔드 프롬프트 챗봇 알고리즘 데이터프레임 엔드포인트 "
    "주민등록번호 운전면허번호 사업자등록번호 외국인등록번호 법인등록번호 개인정보 국민건강보험"
)
PUBLIC_NOUNS = frozenset(_WORDS.split())
"""Left readable by the layer of proper nouns alone: another layer that finds one masks it."""
