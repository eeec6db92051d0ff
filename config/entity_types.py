"""The kinds of personal value that masking finds and a policy may name; `masking.entities` says what each is."""

from __future__ import annotations

from typing import Literal

EntityType = Literal[
    "RRN",
    "FRN",
    "SSN",
    "ITIN",
    "NHS",
    "CARD",
    "IBAN",
    "BRN",
    "CRN",
    "LICENSE",
    "PASSPORT",
    "HEALTH",
    "KNOWN",
    "URL",
    "EMAIL",
    "UUID",
    "MAC",
    "IP",
    "WALLET",
    "PHONE",
    "ACCOUNT",
    "PLATE",
    "ID",
    "ADDRESS",
    "DATE",
    "PERSON",
    "NAME",
    "PLACE",
    "ORG",
    "NUM",
]
