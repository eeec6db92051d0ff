"""Whether what stands behind a label such as `password` is the secret itself.

Prose about passwords, code that reads one from elsewhere, and templates name secrets without holding any.
"""

from __future__ import annotations

import re

_REFERENCE = re.compile(
    r"[$%@<{\[(*#\\]"
    r"|(?:os\.|process\.env|env[.\[(]|environ|getenv|config[.\[(]|settings[.\[(]|self\.|this\.|args?\.|request\.|req\."
    r"|input\(|getpass|secrets?\.|vault[:.]|var\.|data\.|local\.|import\b|new |await |function\b|lambda\b|!\w|\|)",
    re.IGNORECASE,
)
_CALL = re.compile(r"[A-Za-z_][\w.]{0,60}[(\[]")
_DOTTED = re.compile(r"[A-Za-z_]\w{0,40}(?:(?:\.|->|::)[A-Za-z_]\w{0,40}){1,8}[;,)]?\Z")
_HIDDEN = re.compile(r"[*xX•●.…_\-#?]+\Z")
_FILLED_IN = re.compile(r"\{\w*\}|\$\{|%\(\w+\)s|<\w+>")
_WORD = re.compile(r"[A-Za-z]+(?:[-_ ][A-Za-z]+)*\Z")
_SYMBOL = re.compile(r"[!@#$%^&*+=~?]")
_SPACE = re.compile(r"\s")
_TURN = re.compile(r"(?<=[a-z])(?=[0-9])|(?<=[0-9])(?=[a-z])")
_SIGN = re.compile(r"[!#$%^&*]")
_DIGIT = re.compile(r"[0-9]")
_LETTER = re.compile(r"[A-Za-z]")
_TEMPLATE = re.compile(
    r"(?:your|my|the|some|any|insert|enter|put|replace|example|sample|dummy|fake|test|user)[-_ ]?\w{0,20}"
    r"[-_ ]?(?:here|password|passwd|pass|token|key|secret|pwd|value)\w{0,4}\Z",
    re.IGNORECASE,
)
_NOT_SECRETS = frozenset(
    """
    password passwd pass passphrase passcode pwd pw secret secrets key keys token tokens credential credentials
    value values string str text int integer number bool boolean bytes char varchar object array list dict map
    type null nil none undefined true false yes no on off required optional hidden visible default empty unset
    unknown missing invalid valid incorrect correct wrong expired changed reset forgotten protected encrypted
    hashed stored saved sent redacted masked removed omitted secure insecure strong weak safe unsafe case
    sensitive example sample placeholder todo tbd n/a na not and or the a an is in it of for to from with your
    my our his her their this that these those admin user username login id name email mail field input form
    label title description manager policy hash salt length minimum maximum same different available ready set
    used needed mandatory public private important just also still only already never always very too so here
    there what which when where why how
    """.split()  # noqa: SIM905
)
_PROSE_END = re.compile(
    r"(?:ed|ing|ly|able|ible|ive|ous|ful|less|tion|ment|ness|ity|ally|ible|ary|ent|ant)\Z"
)


def strong(value: str, least: int = 4) -> bool:
    """Letters with digits, or a sign that words do not hold: a password by its looks."""
    return (
        len(value) >= least
        and not _HIDDEN.match(value)
        and bool(_SYMBOL.search(value) or (_DIGIT.search(value) and _LETTER.search(value)))
    )


def scrambled(value: str) -> bool:
    """Letters and digits by turns, or with signs: no name of an algorithm or a version."""
    return len(value) >= 6 and bool(
        len(_TURN.findall(value)) >= 2 or (_SIGN.search(value) and _DIGIT.search(value))
    )


def opaque(value: str) -> bool:
    """Long, without spaces, letters and digits: a token by its looks."""
    return len(value) >= 16 and not _SPACE.search(value) and len(_DIGIT.findall(value)) >= 2 and strong(value)


def referred(value: str) -> bool:
    """Whether `value` names where the secret is, or is a template for one."""
    return bool(
        _REFERENCE.match(value)
        or _CALL.match(value)
        or _DOTTED.match(value)
        or _HIDDEN.match(value)
        or _TEMPLATE.match(value)
        or _FILLED_IN.search(value)
    )


def stock(value: str) -> bool:
    """Words that stand behind such a label and are no secret."""
    return all(part in _NOT_SECRETS for part in re.split(r"[-_ ./]+", value.lower()) if part)


def quoted_secret(value: str) -> bool:
    """A value in quotes behind a label."""
    # With a space in it, it is a sentence such as a field's help.
    return 4 <= len(value) <= 512 and not (_SPACE.search(value) or referred(value) or stock(value))


def bare_secret(value: str) -> bool:
    """A value without quotes behind `=` or `:`."""
    return len(value) >= 4 and not referred(value) and not stock(value) and strong(value)


def lone_word(value: str) -> bool:
    """A word of letters alone that ends a line or sentence and is not said *about* a password."""
    return bool(
        len(value) >= 4
        and _WORD.match(value)
        and not stock(value)
        and not _TEMPLATE.match(value)
        and not _PROSE_END.search(value.lower())
    )
