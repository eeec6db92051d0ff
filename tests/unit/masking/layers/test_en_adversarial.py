"""English writing that hides what it holds: whatever is between ⟦ and ⟧ must be covered, save its white space.

Two sets of layers: the rules alone, as on a machine without a model, and with the small model.
"""

from __future__ import annotations

import pytest

from weighbridge.masking.detector import Detector
from weighbridge.masking.layers.base import LayerOptions

RULES = [
    # Spoken and spelled
    "Call me at ⟦two oh two, five five five, zero one four seven⟧ after six.",
    "my number is ⟦five five five - eight six seven - five three oh nine⟧",
    "It's ⟦double seven, four nine, triple zero, one two⟧, got it?",
    "card ends: ⟦four one one one one one one one one one one one one one one one⟧",
    "write to ⟦jane dot doe at example dot com⟧ please",
    "email me at ⟦jane dot doe at example dot com⟧ please",
    "reach me: ⟦john underscore smith at mail dot example dot org⟧",
    "That is spelled ⟦S-M-I-T-H-E-R-S⟧ on the form.",
    "plus one, ⟦four one five, two six seven one nine three three⟧",
    # Broken lines
    "Phone:\n⟦415\n555\n0132⟧\nthanks",
    "SSN\n⟦536-22-\n8145⟧",
    "Name:\n⟦Marta Quill⟧\nRole: buyer",
    "Ship to:\n⟦Orla Brandt⟧\n⟦14 Kestrel Close\nApt 3B\nLeeds LS1 4AP⟧\n",
    "Account number:\n⟦004417820⟧",
    # JSON and other keys
    '{"first_name": "⟦olu⟧", "last_name": "⟦adebayo⟧", "age": ⟦41⟧}',
    '{"name": "⟦min-seo han⟧", "tool": "search"}',
    '{"customer": {"fullName": "⟦Priya Raman⟧", "dob": "⟦1984-02-09⟧"}}',
    "{'patient_name': '⟦Tom Eckhart⟧', 'mrn': '⟦MR448120⟧'}",
    '{"attendees": ["⟦Lena Voss⟧", "⟦Karim Haddad⟧"]}',
    '{"args": "{\\"contact_name\\": \\"⟦Ines Prado⟧\\"}"}',
    "user_name: ⟦kasper holm⟧\nretries: 3",
    "<contact><fullname>⟦Ada Okafor⟧</fullname></contact>",
    "name,email,plan\n⟦Rui Tavares⟧,⟦rui@example.org⟧,gold\n⟦Bea Lindqvist⟧,⟦bea@example.org⟧,free\n",
    "| Name | Team |\n|---|---|\n| ⟦Noor Aziz⟧ | core |\n| ⟦Jan Kowal⟧ | infra |\n",
    "address: ⟦77 Harrow Lane, Bristol⟧\nmode: fast",
    # Titles, labels, greetings
    "Please ask ⟦Mr. Okonkwo⟧ about it.",
    "we saw ⟦dr. lindgren⟧ yesterday",
    "Dear ⟦Philippa⟧,\nthe parcel is here.",
    "Hi ⟦Tomasz⟧, did you see it?",
    "see you then.\n\nKind regards,\n⟦Yara Benali⟧\n",
    "my name is ⟦suda wongsakul⟧ and i need help",
    "Everyone calls me ⟦Ziggy⟧.",
    "Speaking to ⟦Ebba Norling⟧ now.",
    "signed, ⟦Olek⟧",
    "Name of the tenant: ⟦Vusi Dlamini⟧",
    "Emergency contact: ⟦Halima Said⟧",
    "c/o ⟦R. J. Pemberton⟧",
    # Romanised Korean
    "⟦Kim Min-su⟧ joined the call.",
    "The report is by ⟦Seo-yeon Park⟧.",
    "Ask ⟦Lee Jiwon⟧ or ⟦Hyun-woo Choi⟧.",
    "passport holder ⟦HONG GILDONG⟧",
    "email from ⟦park ji-sung⟧ came in",
    # Addresses
    "I live at ⟦221B Baker Street, London NW1 6XE⟧.",
    "Send it to ⟦1600 Amphitheatre Pkwy, Mountain View, CA 94043⟧, please.",
    "ship to ⟦P.O. Box 4412, Tulsa, OK 74101⟧",
    "Our flat: ⟦Hauptstraße 5, 10115 Berlin⟧",
    "Elle habite au ⟦12 rue de la Paix, 75002 Paris⟧",
    "via ⟦Calle de Alcalá 45, 28014 Madrid⟧ every day",
    "the corner of ⟦Larch and Third⟧",
    "moved to ⟦48 maple street, apt 9⟧ last week",
    "⟦350 Fifth Ave Suite 7710\nNew York, NY 10118⟧",
    "Send it to ⟦14 Kestrel Close\nLeeds\nEngland 64677⟧ before noon, please.",
    # Numbers after labels
    "Passport: ⟦C01X00T47⟧",
    "driver's license ⟦D123-4567-8901⟧ expires soon",
    "policy no. ⟦HX-22-90817⟧",
    "order #⟦A7731⟧ has not come",
    "member id is ⟦K-883-21⟧",
    "routing ⟦021000021⟧ account ⟦99384412⟧",
    "NI number ⟦AB 12 34 56 C⟧",
    "EIN ⟦12-3456789⟧",
    "VIN ⟦1HGCM82633A004352⟧",
    "IBAN ⟦GB29 NWBK 6016 1331 9268 19⟧",
    "MRN ⟦0098812⟧",
    "cvv ⟦382⟧",
    "visit ⟦my-bakery.co.uk/about⟧ for more",
    "call ⟦(0161) 496 0000 ext. 12⟧",
    "dial ⟦+44 (0)20 7946 0958⟧",
    # Ages and birthdays
    "I am ⟦31⟧ years old",
    "a man aged ⟦60⟧",
    "She just turned ⟦nineteen⟧.",
    "born on ⟦3/4/87⟧ in spring",
    "DOB: ⟦04.03.1987⟧",
    "my birthday is ⟦March 3rd⟧",
    # Names of other lands
    "⟦Søren Ångström⟧ sent it.",
    "Thanks to ⟦Łukasz⟧ and ⟦Çağla⟧.",
    # More of the same, other words
    "call ⟦oh-one-six-one, four nine six, oh one two three⟧",
    "the code is ⟦five-five-five-two-three-six-eight⟧",
    "ring me on ⟦zero seven seven double oh nine hundred one two three⟧",
    "my ssn is ⟦five three six, twenty two, eighty one forty five⟧",
    "area code ⟦four one five, then eight six seven, five three oh nine⟧",
    "My number: ⟦2 oh 2 five five 5 01 four seven⟧",
    "phone ⟦202-\n555-0147⟧",
    "card ⟦4111 1111\n1111 1111⟧",
    "Contact ⟦+1 (202)\n555 0147⟧ for details",
    "mail: ⟦jane.doe @ example . com⟧",
    "mail: ⟦jane(dot)doe(at)example(dot)com⟧",
    "⟦jane [at] example [dot] com⟧",
    "Patient ⟦Nguyen Thi Lan⟧ was admitted on Tuesday.",
    "From: ⟦Choi Yuna⟧ <⟦yuna@example.kr⟧>",
    "⟦Jeong, Ha-eun⟧ signed the lease",
    "Ms ⟦Kang So-ra⟧ will attend.",
    '{"from":{"name":"⟦Lee Do-yun⟧"},"to":[{"name":"⟦Amara Obi⟧"}]}',
    '{"results":[{"user":"⟦Beatriz Souza⟧","street":"⟦19 Rua das Flores⟧","zip":"⟦4050-262⟧"}]}',
    "SELECT * FROM users WHERE name = '⟦Pieter Janssen⟧' AND city = '⟦Utrecht⟧'",
    "full name:⟦Gustav Lind⟧",
    'export CUSTOMER_NAME="⟦Wanjiru Kamau⟧"',
    'customer: "⟦wanjiru kamau⟧"',
    "His wife ⟦Ileana⟧ and their son ⟦Radu⟧ live in ⟦Cluj⟧.",
    "⟦Dr. Fatoumata Diallo⟧, ⟦14 Avenue Habib Bourguiba, Dakar⟧",
    "Invoice to: ⟦Brightleaf Holdings LLC⟧, ⟦900 W Olympic Blvd, Los Angeles, CA 90015⟧",
    "⟦Flat 2, 9 Crown Yard, Edinburgh EH1 1YZ⟧",
    "we deliver to ⟦Via Garibaldi 12, 20121 Milano MI, Italy⟧",
    "⟦Kerkstraat 108, 1017 GP Amsterdam⟧ is the shop",
    "⟦ul. Piotrkowska 85/12, 90-423 Łódź⟧",
    "Adresse: ⟦Lange Straße 7, 70173 Stuttgart⟧",
    "⟦#12-34 Block 55 Ang Mo Kio Ave 3, Singapore 560055⟧",
    "My address is ⟦4 Privet Drive, Little Whinging, Surrey⟧.",
    "address:\n⟦Unit 7, The Old Mill\nMill Lane\nStockport\nSK1 3AB⟧",
    "live on ⟦5th Avenue⟧ near the park",
    "⟦123 N. Main St., Springfield, IL 62704-1234⟧",
    "meet at ⟦one hundred twelve Elm Street⟧",
    "zip code is ⟦94103⟧",
    "I'm ⟦42⟧.",
    "age: ⟦37⟧, male",
    "the ⟦58⟧-year-old driver",
    "account ending in ⟦4821⟧",
    "sort code ⟦20-00-00⟧, account ⟦55779911⟧",
    "My passport number is ⟦533380006⟧.",
    "UK passport ⟦925665416⟧",
    "license plate ⟦7ABC123⟧",
    "student ID: ⟦20231188⟧",
    "case number ⟦1:22-cv-00415⟧",
    "employee no ⟦E4471⟧",
    "tracking ⟦1Z999AA10123456784⟧",
    "IMEI ⟦490154203237518⟧",
    "NHS number ⟦943 476 5919⟧",
    "tax id: ⟦98-7654321⟧",
    "booking ref ⟦QX7T2P⟧",
    "⟦192.168.4.21⟧ logged in",
    "my twitter is ⟦@quiet_otter88⟧",
    "linkedin.com/in/⟦sofia-marchetti⟧",
    "birthday ⟦12 May⟧",
    "expires ⟦04/27⟧",
    "⟦Aoife Ní Bhriain⟧ wrote this",
    "⟦Jean-Baptiste Grenouille⟧ has the scent.",
    "cc ⟦Ngozi⟧ and ⟦Emeka⟧ on this",
    "Best,\n⟦Tuva⟧",
    "Cheers, ⟦Anneliese⟧",
    "To: ⟦Hr. Bjarne Olsen⟧",
    "Q: Who called? A: ⟦Dmitri Volkov⟧.",
    "@channel ⟦Siobhan⟧ is out today",
    "Assignee: ⟦Takeshi Nakamura⟧",
    "PATIENT: ⟦DOE, JOHN⟧ DOB: ⟦01/02/1960⟧",
    "⟦Smith, Jane A.⟧ (⟦54⟧ y/o)",
    "this is ⟦amelia⟧ from accounts",
]
"""What the rules find without a model."""

MODEL = [
    "⟦Marguerite Oyelaran⟧ approved the budget, then ⟦Oyelaran⟧ left.",
    "Tell ⟦Bartholomew⟧ that the train is late.",
    "the meeting with ⟦Nkechi⟧ went well",
    "⟦JOHN PETERSON⟧ FROM ⟦CHICAGO⟧ CALLED",
    "i spoke to ⟦jennifer adams⟧ about it",
    "⟦Ljubljana⟧ was cold, so ⟦Mateja⟧ stayed in.",
    "⟦Ana María⟧'s sister works at ⟦Brightwater Analytics⟧.",
    "He flew to ⟦Reykjavik⟧ with ⟦Anders⟧.",
    "Have you met ⟦Xiaoming⟧?",
    "⟦Qarabagh⟧ 7 is where ⟦Fidan⟧ lives",
    "Meeting notes 3/4: ⟦Ravi⟧ will draft, ⟦Xochitl⟧ reviews.",
    "Why did ⟦Thandiwe⟧ resign?",
    "born ⟦July 4, 1976⟧ in ⟦Gdynia⟧",
    "hey its ⟦mateo⟧, call me",
    "⟦O'Shaughnessy⟧ and ⟦MacAllister⟧ met.",
    "⟦kim minsu⟧ and ⟦park jisung⟧ called",
]
"""What takes the model or its dictionary."""


def marked(line: str) -> tuple[str, list[tuple[int, int]]]:
    text = ""
    places: list[tuple[int, int]] = []
    for piece in line.split("⟦"):
        inside, mark, outside = piece.partition("⟧")
        if mark:
            places.append((len(text), len(text) + len(inside)))
        text += inside + outside
    return text, places


def left(detector: Detector, line: str) -> list[str]:
    text, places = marked(line)
    covered = {place for start, end, _ in detector.find(text) for place in range(start, end)}
    return [
        text[start:end]
        for start, end in places
        if any(place not in covered and not text[place].isspace() for place in range(start, end))
    ]


def test_the_marks_are_read() -> None:
    assert marked("a ⟦b⟧ c ⟦d⟧") == ("a b c d", [(2, 3), (6, 7)])


@pytest.fixture(scope="module")
def rules() -> Detector:
    return Detector(["en-rules"], LayerOptions())


@pytest.fixture(scope="module")
def with_model() -> Detector:
    return Detector(["en-rules", "spacy-en"], LayerOptions())


@pytest.mark.parametrize("line", RULES)
def test_rules_alone(rules: Detector, line: str) -> None:
    assert left(rules, line) == []


@pytest.mark.parametrize("line", MODEL)
def test_with_the_small_model(with_model: Detector, line: str) -> None:
    assert left(with_model, line) == []
