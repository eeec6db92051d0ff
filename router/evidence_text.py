"""What can be seen of an answer's text alone: that it refuses, is in another language, or goes round in circles.

Every rule here would rather miss a bad answer than take a good one for bad: that one costs a second, dearer answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

_FENCED: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)

_END: Final = 4_000
"""Characters of a question's beginning, and of its end, where it says what is wanted."""


def _ends(question: str) -> str:
    return question if len(question) <= 2 * _END else f"{question[:_END]}\n{question[-_END:]}"


def _holds_one(text: str, words: Iterable[str]) -> bool:
    """Whether one of the words, in small letters, is in the text: ten times as fast as a pattern of them all."""
    text = text.lower()
    return any(word in text for word in words)


# ---- refusals ----

_LONGEST_REFUSAL: Final = 600
"""Characters; who refuses is brief, and a long answer that begins so goes on to help."""
_OPENING: Final = 200
"""Characters from its beginning in which a refusal has said so."""

_APOLOGY: Final = (
    r"(?:(?:i['’]?m|i am|we are) (?:really |very |so |terribly )?sorry|sorry|i apologi[sz]e|unfortunately)"
)
_AS_AN_AI: Final = r"as an? (?:ai|artificial intelligence|(?:large )?language model)[^.!?\n]{0,60}"
_UNABLE: Final = (
    r"i(?: just| simply)? (?:can['’]t|cannot|can not|won['’]t|will not)"
    r"|(?:i am|i['’]m) (?:not able|unable) to"
)
_NOT_DONE: Final = "|".join(
    (
        r"(?:assist|comply|participate|engage in|fulfill? (?:that|this|your))\b",
        r"help (?:you|with|out)\b",
        r"do (?:that|this)\b",
        r"(?:answer|discuss|continue with|respond to|process|complete|support) (?:that|this|your|such)\b",
        r"(?:provide|offer|give|share|create|generate|write|produce) (?:you with )?(?:that|this|such|the requested)\b",
        r"(?:provide|offer|give|share|create|generate|write|produce) (?:you with )?(?:any )?"
        r"(?:content|information|instructions|assistance|guidance) (?:that|on|about|for|with|related)\b",
    )
)
_ENGLISH_REFUSAL: Final = re.compile(
    rf"[\s\"'*]*(?:{_APOLOGY}[,.!:;]*\s*(?:but\s+)?)?(?:{_AS_AN_AI}[,;]?\s*)?(?:{_UNABLE})\s+(?:{_NOT_DONE})",
    re.IGNORECASE,
)

_KOREAN_SORRY: Final = "|".join(
    (
        r"죄송(?:하지만|합니다|해요)",
        r"미안(?:하지만|합니다)",
        r"유감(?:스럽게도|이지만)",
        r"저는 (?:AI|인공지능|언어 ?모델)",
        r"AI(?: 언어)? ?모델(?:로서|이기)",
    )
)
_KOREAN_NOT_DONE: Final = "|".join(
    (
        r"도와 ?(?:드릴|줄)",
        r"도움을? (?:드릴|줄)",
        r"답변(?:을 |해 |을 해 )?(?:드릴|할)",
        r"(?:답|응답|응)(?:해 드릴|할)",
        r"요청(?:을|에)? (?:수행|이행|응)(?:해 드릴|할)",
        r"(?:정보|내용|답변|도움)[를을]? 제공(?:해 드릴|할)",
    )
)
_KOREAN_REFUSAL: Final = re.compile(
    rf"[\s\"'*]*(?:{_KOREAN_SORRY}).{{0,120}}?(?:{_KOREAN_NOT_DONE}) ?수(?:가|는)? ?없(?:습니다|어요|네요|음)",
    re.DOTALL,
)

_GOES_ON: Final = re.compile(
    r"\b(?:however|but (?:i can|here|you)|instead|here(?:['’]s| is| are)|that said|what i can)\b"
    r"|\byou (?:can|could|may|might)\b"
    r"|다만|하지만|대신|그러나|예를 들|다음과 같|방법은|참고로",
    re.IGNORECASE,
)
_FOR_WANT_OF: Final = re.compile(
    r"\b(?:documents?|context|passage|excerpt|provided|attached|the text|real[- ]time)\b"
    r"|문서|제공된|본문|지문|자료|주어진|첨부|실시간",
    re.IGNORECASE,
)
"""An answer that says what it lacks is the right one where that is so."""
_ABOUT_REFUSING: Final = (
    *("refus", "declin", "reject", "apolog", "sorry", "turn down", "turning down"),
    *("거절", "거부", "사과", "죄송", "양해", "정중"),
)


def refuses(text: str, question: str) -> bool:
    """Whether an answer is a refusal and nothing else.

    Args:
        text: the answer, or its beginning.
        question: the caller's last message; one that is about refusing may be answered with one.
    """
    if not text or len(text) > _LONGEST_REFUSAL or "```" in text:
        return False
    opening = text[:_OPENING]
    found = _ENGLISH_REFUSAL.match(opening) or _KOREAN_REFUSAL.match(opening)
    if found is None or _holds_one(_ends(question), _ABOUT_REFUSING):
        return False
    return _GOES_ON.search(text, found.end()) is None and _FOR_WANT_OF.search(text) is None


# ---- languages ----

_HANGUL: Final = re.compile(r"[가-힣ㄱ-ㅎㅏ-ㅣ]")
_LATIN: Final = re.compile(r"[A-Za-zÀ-ɏ]")
_LETTER: Final = re.compile(r"[^\W\d_]")
_NO_PROSE: Final = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+|\$[^$\n]+\$|\\\([^()]{1,400}\\\)", re.DOTALL
)
_QUESTION_LETTERS: Final = 10
_ANSWER_LETTERS: Final = 60
"""Letters from which on the language of a question, or an answer, can be told."""
_NEXT_TO_NONE: Final = 0.05
_MOSTLY: Final = 0.6
_LOOKED_AT: Final = 20_000
"""Characters of a text whose language is told."""
_LANGUAGES: Final = (
    *("language", "translat", "bilingual", "english", "korean", "hangul", "japanese"),
    *("chinese", "mandarin", "cantonese", "french", "german", "spanish", "italian"),
    *("portuguese", "russian", "vietnamese", "thai", "indonesian", "arabic", "hindi"),
    *("turkish", "latin", "hanja", "kanji"),
    *("언어", "번역", "영어", "영문", "한국어", "한국말", "한글", "국문", "국어"),
    *("일본어", "일어", "중국어", "한문", "한자", "프랑스어", "불어", "독일어", "독어"),
    *("스페인어", "이탈리아어", "포르투갈어", "러시아어", "베트남어", "태국어"),
    *("인도네시아어", "아랍어", "외국어", "로마자"),
)
_MESSAGES_LOOKED_AT: Final = 60_000
"""Characters of all messages together in which a language's name is looked for."""


def names_a_language(texts: Iterable[str]) -> bool:
    """Whether messages speak of languages at all: then the answer's may be another than the question's.

    True of messages that are too long to tell.
    """
    left = _MESSAGES_LOOKED_AT
    for text in texts:
        left -= len(text) + 1
        if left < 0 or _holds_one(text, _LANGUAGES):
            return True
    return False


def other_language(question: str, answer: str) -> bool:
    """Whether a question in Korean or in a Latin script has next to nothing of it in its answer.

    False wherever either is too short, or the question mixed. Code, formulas and addresses do not count.
    """
    asked, said = _NO_PROSE.sub(" ", question[:_LOOKED_AT]), _NO_PROSE.sub(" ", answer[:_LOOKED_AT])
    letters, hangul, latin = _counts(asked)
    if letters < _QUESTION_LETTERS:
        return False
    if hangul >= _MOSTLY * letters:
        script = 1
    elif not hangul and latin >= 0.95 * letters and letters >= 2 * _QUESTION_LETTERS:
        script = 2
    else:
        return False
    counted = _counts(said)
    # A letter of Hangul, Han or Kana says as much as two or three of ours.
    enough = _ANSWER_LETTERS if counted[2] > counted[0] / 2 else _ANSWER_LETTERS // 3
    return counted[0] >= enough and counted[script] < _NEXT_TO_NONE * counted[0]


def _counts(text: str) -> tuple[int, int, int]:
    """Letters, those of Hangul, those of Latin scripts."""
    return len(_LETTER.findall(text)), len(_HANGUL.findall(text)), len(_LATIN.findall(text))


# ---- loops ----

_SEEN: Final = 8_000
"""Characters from the end in which a loop is looked for."""
_ANCHOR: Final = 24
_SHORTEST: Final = 120
"""Characters of the shortest loop that counts in an answer that was cut off."""
_LINES: Final = 8
"""How often the same long line must stand there."""
_LONG_LINE: Final = 20
_BULLET: Final = re.compile(r"^\s*(?:[-*•·]|\(?\d{1,4}[.):]|[a-zA-Z가-힣][.)])?\s*")
_ASKED_FOR: Final = re.compile(
    r"\brepeat|\b\d{1,6} ?(?:times|copies|lines)\b|\b(?:hundred|ten|twenty|fifty) (?:times|lines)\b|over and over"
    r"|반복|되풀이|(?<!\d)\d{1,6} ?(?:번|회|줄)|(?:열|스무|백) ?번",
    re.IGNORECASE,
)


def loops(text: str, question: str, cut: bool) -> bool:
    """Whether an answer says the same over and over.

    Args:
        cut: it did not end by itself, as a loop hardly ever does. Of one that did, much more has to be a loop.
    """
    text = text.rstrip()
    if len(text) < _SHORTEST:
        return False
    return (_in_circles(text[-_SEEN:], cut) or _same_lines(text[-_SEEN:])) and not _ASKED_FOR.search(
        _ends(question)
    )


def _in_circles(text: str, cut: bool) -> bool:
    """Whether the text ends with one piece many times in a row."""
    at = text.rfind(text[-_ANCHOR:], 0, len(text) - 1)
    if at < 0:
        return False
    period = len(text) - _ANCHOR - at
    low, high = _ANCHOR, len(text) - period
    while low < high:
        middle = (low + high + 1) // 2
        if text[-middle:] == text[-middle - period : -period]:
            low = middle
        else:
            high = middle - 1
    covered, piece = low + period, text[-period:]
    if not any(map(str.isalpha, piece)):
        # A ruled line, a row of noughts.
        return False
    # A label for each of many things is one short word again and again.
    needed = 24 if len(piece.split()) < 2 else 6
    if period >= 80:
        needed = 4
    if not cut:
        needed *= 4
    return covered >= _SHORTEST and covered >= needed * period


def _same_lines(text: str) -> bool:
    """Whether most of the text's long lines are the same one, whatever their numbers."""
    ends = [line[-_LONG_LINE:] for line in text.split("\n")]
    if len(ends) - len(set(ends)) < _LINES - 1:
        # What is cheap to see of nearly every answer: no line stands there so often.
        return False
    lines = [_BULLET.sub("", line, count=1).strip() for line in _FENCED.sub("", text).splitlines()]
    long = [line for line in lines if len(line) >= _LONG_LINE and line[0] != "|" and line.count(" ") >= 2]
    if len(long) < _LINES:
        return False
    (line, count), *_ = Counter(long).most_common(1)
    return count >= _LINES and count >= _MOSTLY * len(long) and 2 * count * len(line) >= len(text)
