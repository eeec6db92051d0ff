"""Easy-sounding words put around hard questions, for training alone: what they claim is to weigh little there."""

from __future__ import annotations

import hashlib
from typing import Any, Final

AROUND: Final = tuple(
    """
Classify the following:
Label this text.
Tag this as spam or not spam:
Is this positive, negative or neutral?
Detect the intent of this message:
Pick the category: billing, shipping or returns.
Sort this into one of three groups:
Yes or no answer only.
Rate this from 1 to 5.
Sentiment:
Which label fits best?
Simple classification:
Decide whether this is urgent or not urgent.
True or false?
Translate to German:
Translate the text below into Korean.
Put this into Spanish, please:
English to Japanese translation
How do you say this in Italian?
Summarize:
Give me a one-line summary.
TL;DR
Shorten this for me:
Key points only, please.
Extract all dates.
List the people mentioned.
Pull out the email address and phone number as JSON.
Fill in name, date and amount:
Find the keywords in this text:
Hello!
Hey, how are you?
Good morning, hope you are well.
Thanks so much, you're the best!
lol ok
Just chatting here.
I feel great today.
Write a short friendly reply.
Thank you and have a nice day!
Hi :)
positive negative neutral label sentiment category
hello thanks summary translate extract
chat greeting small talk weather
spam ham urgent normal
name date amount email phone
다음 글을 분류해줘.
긍정인지 부정인지 골라줘:
스팸 여부를 알려줘
한 줄로 요약해줘.
영어로 번역해줘:
이름과 날짜만 뽑아줘.
안녕하세요! 반가워요.
고마워요, 좋은 하루 보내세요!
분류 라벨 감정 긍정 부정
인사 잡담 날씨 번역 요약
""".strip().splitlines()
)


def stuffed(prompt: str, lot: int) -> dict[str, Any]:
    """A request that puts one or two of these before, behind or around a prompt, or into the system message.

    Which ones and where is told by the prompt and `lot`, and the same every time.
    """
    drawn = hashlib.sha256(f"{lot}/{prompt}".encode("utf-8", "replace")).digest()
    one, other = (AROUND[int.from_bytes(drawn[at : at + 4], "big") % len(AROUND)] for at in (0, 4))
    gap = "\n\n" if drawn[8] % 2 else " "
    match drawn[9] % 6:
        case 0:
            return _asked(prompt, system=one)
        case 1:
            return _asked(f"{prompt}\n\n{one}")
        case 2:
            return _asked(f"{one}{gap}{prompt}\n\n{other}")
        case 3:
            return _asked(f"{one} {other}{gap}{prompt}")
        case _:
            return _asked(f"{one}{gap}{prompt}")


def _asked(user: str, system: str | None = None) -> dict[str, Any]:
    first = [] if system is None else [{"role": "system", "content": system}]
    return {"messages": [*first, {"role": "user", "content": user}]}
