"""Requests nobody should send, made from a seed: one number, one request."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.request_fields import PATHS

MODELS = ("auto", "local-8b", "local-70b", "commercial")
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@dataclass(frozen=True)
class Case:
    """One request.

    pieces: what is sent, each in a write of its own.
    marker: stands in every text of the request, so it may come back in an answer but in no error.
    whole: all of it is sent, so there must be an answer. A body that stops gets none.
    """

    kind: str
    pieces: tuple[bytes, ...]
    marker: str
    whole: bool = True


class Maker:
    """Makes the `number`-th case of a seed."""

    def __init__(self, seed: int, number: int, port: int) -> None:
        self.rng = random.Random(f"{seed}/{number}")
        self.marker = f"ZQ{self.rng.getrandbits(48):012x}"
        self._port = port

    def case(self, kind: str | None = None) -> Case:
        kind = kind or self.rng.choices(list(_KINDS), weights=[weight for weight, _ in _KINDS.values()])[0]
        return _KINDS[kind][1](self, kind)

    # -- parts

    def text(self) -> str:
        rng, marker = self.rng, self.marker
        return rng.choice(
            (
                marker,
                f"{marker} 주민등록번호는 모릅니다 😀",
                f"\u0000\u0001\u001b[31m{marker}\u202e\ufeff\uffff",
                f"{marker}\r\nx-injected: yes\r\n\r\n",
                f"data: [DONE]\n\n{marker}",
                f"<script>{marker}</script>' OR 1=1 -- ${{jndi:ldap://x}} {{{{7*7}}}} %s %n ../../etc/passwd",
                f"[PERSON_1] <PERSON_1> {marker} __proto__",
                "e\u0301" * rng.randrange(1, 60) + marker,
                marker + "a" * rng.randrange(1, 4000),
            )
        )

    def odd(self, depth: int = 0) -> Any:
        """A value of any type."""
        rng = self.rng
        numbers = (0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 10**400, 1e308, -0.0, 1e-320, 0.5)
        simple: tuple[Callable[[], Any], ...] = (
            lambda: None,
            lambda: rng.random() < 0.5,
            lambda: rng.choice(numbers),
            lambda: "",
            self.text,
            lambda: [],
            dict,
        )
        if depth < 3 and rng.random() < 0.4:
            if rng.random() < 0.5:
                return [self.odd(depth + 1) for _ in range(rng.randrange(1, 4))]
            names = (
                "type",
                "text",
                "role",
                "content",
                "name",
                "",
                "__class__",
                self.marker,
                "a.b[0]",
                "model",
            )
            return {rng.choice(names): self.odd(depth + 1) for _ in range(rng.randrange(1, 4))}
        return rng.choice(simple)()

    def body(self) -> dict[str, Any]:
        """A sound chat body."""
        rng = self.rng
        body: dict[str, Any] = {
            "model": rng.choice(MODELS),
            "messages": [{"role": "user", "content": f"{self.text()} says hello"}],
            "max_tokens": rng.randrange(1, 9),
        }
        if rng.random() < 0.4:
            body["stream"] = True
        return body

    def plant(self, body: dict[str, Any], path: str) -> None:
        """Put an odd value where `path` says, with what leads there."""
        steps = path.replace("[]", ".[]").split(".")
        node: Any = body
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            last = following is None
            below = self.odd() if last else [] if following == "[]" else {}
            if step == "[]":
                if not node or last:
                    node.append(below)
                elif type(node[-1]) is not type(below):
                    node[-1] = below
                node = node[-1]
            else:
                name = self.marker if step == "*" else step
                if last or type(node.get(name)) is not type(below):
                    node[name] = below
                node = node[name]

    def request(self, body: bytes, *headers: str, path: str = CHAT, length: int | None = None) -> bytes:
        lines = [
            f"POST {path} HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            "Content-Type: application/json",
            f"Content-Length: {len(body) if length is None else length}",
            "Connection: close",
            *headers,
        ]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body

    # -- kinds

    def fields(self, kind: str) -> Case:
        body = self.body()
        for path in self.rng.sample(PATHS, self.rng.choice((1, 1, 1, 2, 4))):
            self.plant(body, path)
        return self._sent(kind, dumps(body))

    def top_level(self, kind: str) -> Case:
        body = self.body()
        for name in self.rng.sample(("model", "messages", "stream", "user", "tools", "n"), 2):
            body[name] = self.odd()
        return self._sent(kind, dumps(body))

    def messages(self, kind: str) -> Case:
        rng, body = self.rng, self.body()
        roles = ("system", "user", "assistant", "tool", "developer", "function", self.marker, "", 5, None)
        body["messages"] = [
            {"role": rng.choice(roles), "content": self.text() if rng.random() < 0.5 else self.odd()}
            for _ in range(rng.choice((1, 2, 5, 40)))
        ]
        if rng.random() < 0.2:
            body["messages"].append(self.odd())
        return self._sent(kind, dumps(body))

    def text_completion(self, kind: str) -> Case:
        rng = self.rng
        body: dict[str, Any] = {"model": rng.choice(MODELS), "prompt": self.text(), "max_tokens": 4}
        names = (
            "prompt",
            "suffix",
            "echo",
            "best_of",
            "logprobs",
            "n",
            "stream",
            "stop",
            "max_tokens",
            "model",
        )
        for name in rng.sample(names, rng.choice((0, 1, 1, 2))):
            body[name] = self.odd()
        return Case(kind, (self.request(dumps(body), path=TEXT),), self.marker)

    def json_shape(self, kind: str) -> Case:
        rng, marker = self.rng, self.marker
        sound = dumps(self.body())
        text = marker.encode()
        start = b'{"model":"auto","messages":[{"role":"user","content":"' + text + b'"}],'
        shapes: tuple[Callable[[], bytes], ...] = (
            lambda: start + b'"model":"commercial"}',
            lambda: start + b'"messages":[]}',
            lambda: start + b'"\\u006dodel":"local-70b"}',
            lambda: start + b'"x":{"y":1,"y":2}}',
            lambda: (
                start
                + b'"temperature":'
                + rng.choice((b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999"))
                + b"}"
            ),
            lambda: (
                start
                + b'"seed":'
                + rng.choice((b"1" * 5000, b"-" + b"9" * 400, b"0x10", b"01", b"1.", b".5", b"+1", b"1e+"))
                + b"}"
            ),
            lambda: start + b'"x":' + b"[" * rng.choice((60, 70, 5000, 60000)) + b"}",
            lambda: start + b'"x":' + b'{"a":' * 3000 + b"1" + b"}" * 3001,
            lambda: start + b'"x":' + b"[" * 63 + b"]" * 63 + b"}",
            lambda: start + b'"x":[' + b"0," * rng.choice((1000, 60_000, 120_000)) + b"0]}",
            lambda: start + b'"x":"\\ud800"}',
            lambda: start + b'"x":"\\udc00\\ud800' + text + b'"}',
            lambda: start + b'"x":"\\u12"}',
            lambda: start + b'"x":"\xed\xa0\x80"}',
            lambda: start + b'"x":"\xc0\xaf"}',
            lambda: start + b'"x":"\xff\xfe' + text + b'"}',
            lambda: start + b'"x":"' + bytes([rng.randrange(32)]) + b'"}',
            lambda: start + b"}",
            lambda: start + b"//" + text + b'\n"x":1}',
            lambda: start + b"'x':1}",
            lambda: start + b'"\\u0000":1,"":2}',
            lambda: b"\xef\xbb\xbf" + sound,
            lambda: sound.decode().encode(rng.choice(("utf-16", "utf-16-le", "utf-32", "utf-7"))),
            lambda: json.dumps(text.decode() + "é").encode("latin-1"),
            lambda: sound + sound,
            lambda: sound + rng.choice((b"\x00", b"}", b"\n\n" + text, b" ", b",")),
            lambda: rng.choice(
                (b"", b" ", b"null", b"true", b"0", b"[]", b'"' + text + b'"', b"{}", b"[" + sound + b"]")
            ),
            lambda: sound[: rng.randrange(len(sound))],
            lambda: sound.replace(b'"', b"'"),
            lambda: b"\x00" * 100 + text,
            lambda: rng.randbytes(rng.randrange(1, 3000)) + text,
            lambda: b"model=auto&messages=" + text,
        )
        return self._sent(kind, rng.choice(shapes)())

    def mutated(self, kind: str) -> Case:
        body = bytearray(dumps(self.body()))
        for _ in range(self.rng.randrange(1, 6)):
            at = self.rng.randrange(len(body))
            change = self.rng.randrange(3)
            if change == 0:
                body[at] = self.rng.randrange(256)
            elif change == 1:
                del body[at : at + self.rng.randrange(1, 8)]
            else:
                body[at:at] = self.rng.randbytes(self.rng.randrange(1, 8))
            if not body:
                break
        return self._sent(kind, bytes(body))

    def large(self, kind: str) -> Case:
        rng, body = self.rng, self.body()
        choice = rng.randrange(5)
        if choice == 0:
            body["messages"][0]["content"] = f"{self.marker} " + "가나다 " * rng.randrange(1000, 20_000)
        elif choice == 1:
            body["messages"] = body["messages"] * rng.randrange(100, 3000)
        elif choice == 2:
            body["x"] = {f"{self.marker}{n}": n for n in range(rng.randrange(100, 5000))}
        elif choice == 3:
            body["messages"][0]["content"] = [{"type": "text", "text": self.marker}] * rng.randrange(50, 2000)
        else:
            body["user"] = "u" * rng.randrange(100_000, 1_000_000)
        return self._sent(kind, dumps(body))

    def too_large(self, kind: str) -> Case:
        return Case(
            kind, (self.request(b"", length=self.rng.choice((8_388_609, 10**12, 10**18))),), self.marker
        )

    def framed(self, kind: str) -> Case:
        rng = self.rng
        body = dumps(self.body())
        choice = rng.randrange(5)
        if choice == 0:
            return Case(kind, (self.request(body, length=rng.randrange(len(body))),), self.marker)
        if choice == 1:
            packed = gzip.compress(body, mtime=0)
            return Case(kind, (self.request(packed, "Content-Encoding: gzip"),), self.marker)
        if choice == 2:
            other = rng.choice(
                ("text/plain", "multipart/form-data; boundary=x", "application/json; charset=utf-16", "")
            )
            plain = self.request(body).replace(b"application/json", other.encode())
            return Case(kind, (plain,), self.marker)
        head = self.request(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        sizes = [rng.choice((1, 3, 50, 1000)) for _ in range(len(body))]
        chunks, at = [], 0
        for size in sizes:
            piece = body[at : at + size]
            if not piece:
                break
            extension = b";" + self.marker.encode() if choice == 4 else b""
            chunks.append(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece))
            at += size
        trailer = b"authorization: Bearer x\r\nx-weighbridge-priority: x\r\n" if choice == 4 else b""
        chunks.append(b"0\r\n" + trailer + b"\r\n")
        middle = len(chunks) // 2
        return Case(kind, (head + b"".join(chunks[:middle]), b"".join(chunks[middle:])), self.marker)

    def stops(self, kind: str) -> Case:
        body = dumps(self.body())
        sent = self.request(body)
        return Case(kind, (sent[: self.rng.randrange(1, len(sent))],), self.marker, whole=False)

    def leaves(self, kind: str) -> Case:
        body = self.body() | {"max_tokens": 30, "stream": True}
        return Case(kind, (self.request(dumps(body)),), self.marker, whole=False)

    def headers(self, kind: str) -> Case:
        rng, marker = self.rng, self.marker
        pool = (
            f"x-weighbridge-max-queue-ms: {rng.choice(('-1', '1e3', '99999999', '5, 6', marker, ''))}",
            f"x-weighbridge-priority: {rng.choice(('batch', 'BATCH', marker, ''))}",
            f"x-weighbridge-data-class: {rng.choice((marker, 'a b', 'x' * 40, '', 'public'))}",
            f"x-weighbridge-conversation-id: {rng.choice((marker, 'é', '', 'x' * 300))}",
            f"authorization: Bearer {marker}",
            f"x-request-id: {marker}",
            f"traceparent: {marker}",
            f"x-http-method-override: {marker}",
            f"cookie: {marker * 50}",
            f"accept: {marker}",
        )
        return Case(kind, (self.request(dumps(self.body()), *rng.choices(pool, k=3)),), marker)

    def _sent(self, kind: str, body: bytes) -> Case:
        return Case(kind, (self.request(body),), self.marker)


def dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


_KINDS: dict[str, tuple[int, Callable[[Maker, str], Case]]] = {
    "fields": (40, Maker.fields),
    "top_level": (8, Maker.top_level),
    "messages": (8, Maker.messages),
    "text_completion": (8, Maker.text_completion),
    "json_shape": (16, Maker.json_shape),
    "mutated": (8, Maker.mutated),
    "large": (1, Maker.large),
    "too_large": (1, Maker.too_large),
    "framed": (6, Maker.framed),
    "stops": (4, Maker.stops),
    "leaves": (3, Maker.leaves),
    "headers": (6, Maker.headers),
}
