"""Passwords, tokens and keys, and the many words around them that are none."""

from __future__ import annotations

import logging
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.masking.entities import CREDENTIAL
from weighbridge.masking.folding import fold_text
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.layers.credentials import Credentials, build

HEX = "0123456789abcdef"
MIX = "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0cD3fG6hJ9kL2nP5rS8tU1wX4yZ7bC0eF3g"

SECRETS = [
    "password=hunter2",
    "password = 'correcthorse'",
    'password: "Tr0ub4dor&3"',
    '{"password": "qwerty99"}',
    '{\\"password\\": \\"qwerty99\\"}',
    "DB_PASSWORD=s3cr3t-value",
    "export POSTGRES_PASSWORD='pg-pass-99'",
    "MYSQL_ROOT_PASSWORD=correcthorse",
    "spring.datasource.password=Spring!2024",
    "const dbPassword = 'letmein-now';",
    "the password is Tr0ub4dor&3.",
    "My password is swordfish.",
    "my pw is abc123!",
    "pw: qwer1234",
    "The password for the admin account is Abc12345!",
    "the password for db01.corp: Abc12345!",
    "Password - hunter22!",
    "with password 1q2w3e4r and user kim",
    "passphrase: correct horse battery staple",
    "my seed phrase is abandon ability able about above absent absorb abstract absurd abuse access accident",
    "the key is " + MIX[:32],
    "내 비번 알려 줄게 qwer1234!!",
    "비밀번호는 홍길동1234!입니다",
    "pw hunter2!",
    "PIN: 4821",
    "the password is 12345678",
    "Password:\nhunter2!",
    "| password | hunter2! |",
    "ID/PW: hong / qwer1234",
    "login admin password Xy12ab",
    "?user=kim&password=abc12345&x=1",
    "Server=db;User Id=sa;Password=Passw0rd!;",
    "비밀번호: abcd1234!",
    "비밀번호는 abcd1234입니다",
    "비밀번호는 1234입니다",
    "비번은 qwerty12이고",
    "비번 qwerty12",
    "암호는 qwertyuiop입니다",
    "암호는 '열려라참깨'입니다",
    "패스워드=hunter22",
    "비밀번호(임시): Temp!234",
    "비밀번호를 Qwer!234로 변경했습니다",
    "비밀번호\nabcd1234!",
    "아이디/비번: hong / 1234abcd",
    "인증번호는 482913 입니다",
    "API 키: 9f8e7d6c5b4a39281706",
    f"토큰은 {MIX[:24]}",
    f"Authorization: Bearer {MIX[:32]}",
    "Authorization: Basic aG9uZzpxd2VyMTIzNA==",
    f"curl -H 'X-Api-Key: {MIX[:20]}'",
    "curl -u admin:hunter2 https://x",
    "sshpass -p hunter2 ssh host",
    "mysqldump -u root -phunter22 db",
    "postgres://app:S3cret@db.internal:5432/app",
    "redis://:p4ssw0rd@cache:6379/0",
    "mongodb+srv://u:abcd1234@cluster0.mongodb.net",
    "jdbc:oracle:thin:scott/tiger9@//db:1521/x",
    f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={(MIX * 2)[:86]}==",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----MIIEowIBAAKCAQEA-----END PRIVATE KEY-----",
    "—BEGIN OPENSSH PRIVATE KEY— b3BlbnNzaC1rZXk",
    "─────BEGIN EC PRIVATE KEY─────",
    "BEGIN_RSA_PRIVATE_KEY MIIEowIBAAKCAQEA",
    "AKIAIOSFODNN7EXAMPLE",
    f"aws_secret_access_key = {MIX[:40]}",
    "ghp_" + MIX[:36],
    "github_pat_" + MIX[:40],
    "glpat-" + MIX[:20],
    "xoxb-123456789012-abcdefABCDEF12",
    "sk-" + MIX[:48],
    "sk-proj-" + MIX[:48],
    "sk-ant-api03-" + MIX[:60],
    "hf_" + MIX[:34],
    "AIza" + MIX[:35],
    "npm_" + MIX[:36],
    "sk_live_" + MIX[:24],
    "SG." + MIX[:22] + "." + MIX[:43],
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    '{"api_token": "' + MIX[:20] + '"}',
    "client_secret: '" + HEX * 2 + "'",
    "accessToken = `" + MIX[:32] + "`",
    "Cookie: JSESSIONID=" + MIX[:32],
    HEX * 2 + "-us12",
    "123456789:AAF" + MIX[:32],
    "AC" + HEX * 2,
    "sq0csp-" + MIX[:43],
    "root:$6$rounds5$" + MIX[:60],
    "$2b$12$" + MIX[:53],
]
HARMLESS = [
    "How do I reset my password?",
    "The password is required and must be at least 8 characters long.",
    "Your password is incorrect. The password is case-sensitive.",
    "Password must contain 8-20 characters, one digit and one symbol.",
    "Passwords should be hashed with SHA256 or PBKDF2 before storing.",
    "Password: required",
    "password = os.environ['DB_PASSWORD']",
    "password = getpass.getpass()",
    'password = input("Password: ")',
    "password: ${DB_PASSWORD}",
    "password: {{ vault_password }}",
    'password="<your-password>"',
    "password=your_password_here",
    'password = "********"',
    "def login(user: str, password: str) -> bool:",
    "connect(user=user, password=password)",
    "self.password = password",
    "if password == other_password:",
    '{"password": {"type": "string", "minLength": 8}}',
    '"password": "Please enter your password"',
    "password_min_length: 12",
    "password_reset_timeout = 86400",
    "const token = await getToken();",
    "for token in tokens: print(token)",
    'token = "hello"',
    '{"token": "[CLS]"}',
    "The secret is to keep going. Her secret is safe with me.",
    "secret_key = settings.SECRET_KEY",
    "api_key = os.getenv('OPENAI_API_KEY')",
    "passphrase: choose words that are easy to remember",
    "The password for the admin account is expired and the password to your account is wrong.",
    "password SHA256 hash, password PBKDF2, password step2 and password v2.1.0",
    "cache key: 9fceb02d0ae598e95dc970b74767f19372d61af8, key: user_profile_settings_2024_v2",
    "비밀번호 정책은 ISO27001, 암호 알고리즘은 AES256, 비밀번호 문의 hong1@corp.com",
    "The key is under the mat; a private key signs, a public key verifies.",
    "pinned the pin 12 of the chip, GPIO pin = 17",
    "upward and spinning compass passed; spin: 4821, compass: 12345, mypin=12345",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 fixes it",
    "sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "id 123e4567-e89b-12d3-a456-426614174000",
    "basic income, basic research and bearer bonds",
    "https://example.com:8443/path and http://user@host/",
    "postgres://user:password@localhost/db",
    "https://user:pw@a.kr:8443/x?token=abc",
    "Pass `region` or `revision=` to the constructor",
    '_SIGNATURE = rf"^{_ARGUMENT_LIST}->{_SHAPE}$"',
    'password = f"{user}-{number}"',
    'password = f"pw-{user}-2024"',
    "password = fetch_pw2(user)",
    "label('$x$', (1,2)); label('$y$',ymin,ymax,defaultpen)",
    "sk-learn and risk-averse task_runner",
    "비밀번호를 변경해 주세요.",
    "비밀번호는 8자리 이상이어야 합니다.",
    "비밀번호는 1234자 이하로",
    "비밀번호는 영문, 숫자 조합입니다",
    "비밀번호 5회 오류 시 잠깁니다",
    "비밀번호는 2024년부터 의무입니다",
    "암호화 처리됩니다. 암호는 AES로 보관합니다.",
    "비밀번호는 별도 문자로 전송드린 점",
    "인증번호를 입력하세요",
    "토큰은 JWT로 발급합니다",
]


@pytest.fixture(scope="module")
def layer() -> Credentials:
    return build(LayerOptions())


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_found(layer: Credentials, text: str) -> None:
    for written in (text, f"확인 부탁드립니다. {text} 감사합니다", f"See this:\n{text}\nthanks"):
        found = layer.find(fold_text(written))
        assert found, written
        assert {entity for _, _, entity in found} == {CREDENTIAL}


@pytest.mark.parametrize("text", HARMLESS)
def test_talk_about_secrets_is_none(layer: Credentials, text: str) -> None:
    for written in (text, f"먼저 읽어 주세요. {text}", f"See this:\n{text}\n"):
        folded = fold_text(written)
        assert [folded[start:end] for start, end, _ in layer.find(folded)] == []


@pytest.mark.parametrize(
    "spelling", ["\u200b".join, lambda text: "".join(chr(ord(c) + 0xFEE0) for c in text)]
)
def test_another_spelling_hides_nothing(layer: Credentials, spelling: object) -> None:
    assert callable(spelling)
    assert layer.find(fold_text(spelling("password=hunter2")))


def test_the_span_is_the_secret(layer: Credentials) -> None:
    text = "login with password='hunter22' today"
    assert [text[start:end] for start, end, _ in layer.find(text)] == ["hunter22"]


@pytest.mark.parametrize(
    "piece",
    [
        "password", "password=", "password is ", "비밀번호는 ", "sk-", "eyJ", "aB3dE6gH9jK2mN5", "://a:", "bearer ",
        "-begin ", "xoxb-1-", "token'", "aws key '", "pw: a/", "key_", "BEGIN A ", "curl -", "$2a$", "pw",
        "password: '", "비밀번호", "비번은 a/", "/pw a/", "net user ", "mysql -p", "//a/:_authToken=",
    ],
)  # fmt: skip
def test_hostile_text_costs_linear_time(layer: Credentials, piece: str) -> None:
    def cost(length: int) -> float:
        text = piece * (length // len(piece))
        begun = time.process_time()
        layer.find(text)
        return time.process_time() - begun

    cost(2_000)
    assert cost(100_000) < max(12 * cost(20_000), 0.2)
    assert cost(100_000) < 5


def test_it_keeps_quiet(
    layer: Credentials, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        layer.find("password = 'hunter22' ghp_" + MIX[:36])
        logging.getLogger("detect-secrets").critical("text of a request")
    assert caplog.text == ""
    assert capsys.readouterr() == ("", "")


@settings(deadline=None)
@given(st.text(st.sampled_from("password=:'\" \n비밀번호는1234abcd!-_/@"), max_size=120))
def test_spans_lie_in_the_text(text: str) -> None:
    for start, end, entity in LAYER.find(text):
        assert 0 <= start < end <= len(text)
        assert entity == CREDENTIAL


LAYER = build(LayerOptions())
