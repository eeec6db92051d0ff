"""Prose in languages that nobody reads here, and the foreign names in text that somebody does."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.masking.entities import LANGUAGE
from weighbridge.masking.folding import fold_text
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.layers.language import build

LAYER = build(LayerOptions())
PROSE = {
    "Chinese": "我叫王小明，我住在北京市朝阳区，请帮我写一封信给我的医生。",
    "Japanese": "私の名前は田中太郎です。東京都新宿区に住んでいます。電話してください。",
    "Russian": "Меня зовут Иван Петров, я живу в Москве и хочу поменять номер телефона.",
    "Arabic": "اسمي أحمد علي وأعيش في القاهرة وأريد تغيير رقم هاتفي",
    "Thai": "ผมชื่อสมชาย ใจดี อาศัยอยู่ที่กรุงเทพมหานคร ต้องการเปลี่ยนเบอร์โทรศัพท์",
    "Hindi": "मेरा नाम राजेश कुमार है और मैं दिल्ली में रहता हूँ, कृपया मेरी मदद करें",
    "Greek": "Με λένε Γιώργο Παπαδόπουλο και μένω στην Αθήνα με την οικογένειά μου",
    "Hebrew": "שמי דוד כהן ואני גר בתל אביב ורוצה לשנות את מספר הטלפון שלי",
    "Spanish": "Me llamo Juan García y vivo en Madrid con mi familia.",
    "Spanish, short": "Mi nombre es Juan Pérez.",
    "French": "Je m'appelle Jean Dupont et j'habite à Paris avec ma femme.",
    "German": "Ich heiße Hans Müller und wohne mit meiner Frau in Berlin.",
    "Italian": "Mi chiamo Mario Rossi e abito a Roma con la mia famiglia.",
    "Portuguese": "Meu nome é João Silva e moro em Lisboa com a minha família.",
    "Dutch": "Mijn naam is Jan de Vries en ik woon in Amsterdam met mijn vrouw.",
    "Vietnamese": "Tôi tên là Nguyễn Văn An và tôi đang sống tại Hà Nội.",
    "Indonesian": "Nama saya Budi Santoso dan saya tinggal di Jakarta dengan keluarga saya.",
    "Turkish": "Benim adım Mehmet Yılmaz ve ben bir müşteri olarak yardım istiyorum, çok teşekkürler.",
    "Polish": "Nazywam się Jan Kowalski i mieszkam w Warszawie, ale nie mam już tego numeru telefonu.",
    "Swedish": "Jag heter Erik Svensson och jag bor i Stockholm med min fru.",
    "Tagalog": "Ang pangalan ko po ay Juan dela Cruz at nakatira ako sa Maynila.",
}


def types(text: str) -> set[str]:
    return {entity for _, _, entity in LAYER.find(fold_text(text))}


@pytest.mark.parametrize("language", PROSE)
def test_prose_nobody_reads_refuses(language: str) -> None:
    prose = PROSE[language]
    assert LANGUAGE in types(prose)
    assert LANGUAGE in types(
        f"Please translate this letter into English for me: {prose} Thank you very much."
    )
    assert LANGUAGE in types(f"다음 글을 한국어로 번역해 주세요.\n\n{prose}\n\n감사합니다.")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("대표이사 金哲洙 귀하", "金哲洙"),
        ("홍길동(洪吉童)은 조선의", "洪吉童"),
        ("담당자는 田中太郎입니다", "田中太郎"),
        ("customer スズキ called", "スズキ"),
        ("signed by Иван Петров yesterday", "Иван Петров"),
        ("بقلم", "بقلم"),
        ("met with Γιώργος in May", "Γιώργος"),
        ("王小明", "王小明"),
    ],
)
def test_a_few_letters_are_masked_as_a_name(text: str, name: str) -> None:
    folded = fold_text(text)
    assert [(folded[start:end], entity) for start, end, entity in LAYER.find(folded)] == [(name, "NAME")]


@pytest.mark.parametrize(
    "text",
    [
        "美 대통령과 中 주석이 만나 北 문제를 논의했다. 前 장관 A씨(男)는",
        "Juan Carlos de la Cruz y Fernández met José María Aznar and Ludwig van der Rohe in San José del Cabo.",
        "His motto was je ne sais quoi, c'est la vie, and carpe diem; the raison d'être of the café.",
        "Rua das Flores 12, 4050-262 Porto and Calle de la Reina 5, Madrid and Am Alten Markt 3",
        "Los Angeles, Las Vegas, El Paso, San Francisco, Santa Fe, Des Moines, La Jolla, Baton Rouge",
        "The El Niño and La Niña events of the Río de la Plata are described in Der Spiegel and Le Monde.",
        "α + β = γδ where λ is the rate and Δt = 0.5; ∑ and ℵ₀",
        "def main(a, b, en, es, de): return a if b else en[es] + de  # le, la, les",
        "SELECT id, name FROM users WHERE id IN (1, 2) AND no = 3",
        "Lorem ipsum dolor sit amet",
        "Der Ring des Nibelungen and Così fan tutte were both sung in that season.",
        "국민은행 계좌로 USD를 송금하고 e-mail로 알려 주세요.",
        "Nguyễn Thị Phương Thảo, Trần Văn Đức, Lê Hồng Phong",
        "Kim Min-su, Park Ji-sung and Lee Na-young visited the office to sign a contract.",
        "que que que que que que que",
        "translate que pero cuando para como sin muy and also the words of it to those in that",
        "Calle de la Cruz del Mar y los Reyes",
        "x en y se z; A. 12 de 13 B. 14 en 15",
    ],
)
def test_names_phrases_and_formulas_are_no_prose(text: str) -> None:
    assert types(text) == set()


@pytest.mark.parametrize(
    "piece", ["a ", "que ", "金", "金 ", "И ", "Иван ", "l'a ", "ααααα ", "ス-", ". ", "é"]
)
def test_hostile_text_costs_linear_time(piece: str) -> None:
    def cost(length: int) -> float:
        text = piece * (length // len(piece))
        begun = time.process_time()
        LAYER.find(text)
        return time.process_time() - begun

    cost(2_000)
    assert cost(100_000) < max(12 * cost(20_000), 0.2)


@settings(deadline=None)
@given(st.text(st.sampled_from("que la 金哲-·ИванΓιώ한글a'.\n "), max_size=80))
def test_spans_lie_in_the_text(text: str) -> None:
    for start, end, entity in LAYER.find(text):
        assert 0 <= start < end <= len(text)
        assert entity in (LANGUAGE, "NAME")
