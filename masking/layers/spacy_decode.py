"""The same entities as spaCy's NER finds, at half the cost.

spaCy asks the network once a token, and each time calls the matrix library for a single row. Outside an entity the
question depends on the token alone, so here it is put for all tokens in one go; within one there are two answers, going
on and ending, and two rows of the matrix decide. Anything but the plain model we know is left to spaCy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy
from spacy.attrs import IS_SPACE

_FEATURES = 3
"""The token, the entity's first token, and the token before, when within an entity."""


class Decoder:
    """Reads documents with the weights of one `ner` pipe. Made by `decoder`."""

    def __init__(self, ner: Any) -> None:
        self._vectors, self._lower, upper = ner.model.layers
        self._gemm = ner.model.ops.gemm
        self._lower_bias = self._lower.get_param("b")
        self._weights, self._bias = upper.get_param("W"), upper.get_param("b")
        # `move_names` leaves out one that only blocks entities set beforehand: `U-`.
        moves: list[str] = [ner.moves.get_class_name(place) for place in range(ner.moves.n_moves)]
        self._places = {move: place for place, move in enumerate(moves)}
        self._labels = [move.partition("-")[2] for move in moves]
        self._begins = numpy.array([move.startswith("B-") for move in moves])
        self._units = numpy.array([move.startswith("U-") for move in moves])
        self._never = numpy.array([move == "U-" or move.startswith(("I-", "L-")) for move in moves])

    def entities(self, docs: Sequence[Any]) -> Iterator[list[tuple[int, int, str]]]:
        """Start, end (exclusive, in characters) and label of each entity, document by document."""
        filled = [doc for doc in docs if len(doc)]
        cached = self._lower.predict(self._vectors.predict(filled)) if filled else None
        row = 1
        for doc in docs:
            if not len(doc):
                yield []
                continue
            # Row 0 stands for a token that is not there.
            yield self._decode(doc, cached[row : row + len(doc)], cached[0])  # type: ignore[index]
            row += len(doc)

    def _decode(self, doc: Any, rows: Any, absent: Any) -> list[tuple[int, int, str]]:
        hidden = (rows[:, 0] + (absent[1] + absent[2] + self._lower_bias)).max(axis=-1)
        scores = self._gemm(numpy.ascontiguousarray(hidden), self._weights, trans2=True) + self._bias
        scores[:, self._never] = -numpy.inf
        # No entity begins on white space, and none that goes on begins on the last token.
        blank = doc.to_array([IS_SPACE]).reshape(-1).astype(bool)
        scores[numpy.ix_(blank, self._begins | self._units)] = -numpy.inf
        scores[-1, self._begins] = -numpy.inf
        chosen = scores.argmax(axis=1).tolist()
        found: list[tuple[int, int, str]] = []
        last = len(chosen) - 1
        at = 0
        while at <= last:
            start, move = at, chosen[at]
            label = self._labels[move]
            if self._begins[move]:
                at += 1
                while at < last and self._goes_on(rows, start, at, label):
                    at += 1
            if label:
                found.append((doc[start].idx, doc[at].idx + len(doc[at]), label))
            at += 1
        return found

    def _goes_on(self, rows: Any, start: int, at: int, label: str) -> bool:
        hidden = (rows[at, 0] + rows[start, 1] + rows[at - 1, 2] + self._lower_bias).max(axis=-1)
        on, end = self._places[f"I-{label}"], self._places[f"L-{label}"]
        return bool(
            self._weights[on] @ hidden + self._bias[on] >= self._weights[end] @ hidden + self._bias[end]
        )


def decoder(nlp: Any) -> Decoder | None:
    """A decoder for a model's only pipe, its `ner`; None when it is not of the plain kind."""
    if nlp.pipe_names != ["ner"]:
        return None
    ner = nlp.get_pipe("ner")
    model = ner.model
    plain = (
        getattr(ner, "cfg", {}).get("beam_width") == 1
        and len(model.layers) == _FEATURES
        and model.attrs.get("has_upper")
        and not model.attrs.get("unseen_classes")
        and model.layers[1].get_param("W").shape[0] == _FEATURES
        and model.ops.name == "numpy"
    )
    return Decoder(ner) if plain else None
