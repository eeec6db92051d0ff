"""Ordinary English without personal data stays readable."""

from __future__ import annotations

import pytest

from weighbridge.masking.detector import Detector
from weighbridge.masking.layers.base import LayerOptions

PROSE = """\
Please summarise the following document in three bullet points. The committee met to discuss how the new heating
system should be paid for, and whether the cost could be spread over several years. Most members agreed that the
current boiler is too old, but a few of them wanted a second quote before spending anything.

Write a Python function that reads a CSV file, groups the rows by month and returns the average of each group. Use
pandas if possible, and add type hints. The function should raise an error when the file is empty.

def average_by_month(path: str) -> dict[str, float]:
    frame = pd.read_csv(path, parse_dates=["date"])
    return frame.groupby(frame["date"].dt.month)["value"].mean().to_dict()

Explain the difference between supervised and unsupervised learning. Then give two examples of each from everyday life.
Our web server returns a 502 error about once an hour. We use Nginx in front of a Node service, and memory use looks
fine. What should we check first, and how can we reproduce the problem in a test environment?

The history of bread goes back thousands of years. Early farmers ground grain between stones and mixed the flour with
water. Later, people learned that dough left in a warm place would rise. Every region has its own favourite.

Chapter 3 of the manual says that version 2.4 needs at least 8 GB of memory. Figure 12 shows the steps. If that does not
help, see Section 5.1. Step 4 takes about 10 minutes. The lift is being repaired again, so use the stairs.
"""

HARMLESS = [
    "Give me 5 reasons why the sky is blue.",
    "What is the capital of the country, and when was it founded?",
    "Run `pip install numpy==1.26.4` and restart the kernel.",
    "if (x > 3) { return items.map(i => i.id); }",
    "The answer is 42 and the second is 3.14159.",
    "Thanks for the quick answer! That works now.",
    "Translate this into French and German, please.",
    "my name is not important here",
    "There are 3 key points and 2 open fields.",
    "one two three four five six seven",
    "The meeting has been moved to Thursday.",
    '{"name": "get_weather", "type": "function", "strict": true}',
    "SELECT id, total FROM orders WHERE total > 100 ORDER BY total DESC;",
    "Chapter 7 explains sorting; Table 2 lists the costs.",
    "Sign-up is closed, but the To-do list and the Pop-up remain.",
    "see README.md, setup.py and index.js for details",
    "Dear Sir or Madam, thank you for your letter.",
    "Meet me at the corner of the room.",
]


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector(["en-rules", "spacy-en"], LayerOptions())


def test_little_of_plain_prose_is_masked(detector: Detector) -> None:
    masked = sum(end - start for start, end, _ in detector.find(PROSE))
    assert masked / len(PROSE) < 0.03


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_texts_are_left_alone(detector: Detector, text: str) -> None:
    assert [text[start:end] for start, end, _ in detector.find(text)] == []
