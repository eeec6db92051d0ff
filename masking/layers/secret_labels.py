"""What stands before a secret, and how the secret follows it."""

from __future__ import annotations

import re

_I = re.IGNORECASE

LABELS: dict[str, str] = {
    **dict.fromkeys(("begin", "putty-user-key-file", "age-secret-key"), "block"),
    "://": "login",
    **dict.fromkeys(("authorization", "bearer", "basic "), "scheme"),
    **dict.fromkeys(("sess", "sid=", "jsessionid", "phpsessid", "connect.sid", "csrf", "xsrf", "remember"), "cookie"),
    **dict.fromkeys(
        ("$2a$", "$2b$", "$2x$", "$2y$", "$1$", "$5$", "$6$", "$y$j", "$argon2", "$apr1$", "$pbkdf2"), "hashed"
    ),
    **dict.fromkeys(
        (
            "akia", "asia", "abia", "acca", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "gldt-",
            "glrt-", "glcbt-", "glptt-", "gloas-", "xox", "xapp-", "xwfp-", "sk-", "sk_", "rk_", "pk_live_", "whsec_",
            "hf_", "api_org_", "aiza", "ya29.", "gocspx-", "npm_", "pypi-ag", "sg.", "dapi", "dop_v1_", "doo_v1_",
            "shpat_", "shpss_", "shpca_", "dp.pt.", "ntn_", "secret_", "lin_api_", "gsk_", "pplx-", "xai-", "r8_",
            "hvs.", "hvb.", "atatt3x", "atbb", "pmak-", "glsa_", "glc_", "nvapi-", "eyj", "sq0", "eaaa", "figd_",
            "sbp_", "sntrys_", "rubygems_", "tskey-", "pscale_", "key-", "pat", "lsv2_", "dckr_pat_", "ops_eyj",
        ),
        "token",
    ),
    **dict.fromkeys(
        ("sshpass", "curl", "mysql", "login ", "sqlplus", "thin:", "--password", "-passin", "net user"), "named"
    ),
    **dict.fromkeys(
        ("password", "passwd", "passphrase", "passcode", "pass phrase", "pass code", "pwd", "pw", "pass", "pin"),
        "strong",
    ),
    **dict.fromkeys(
        ("passphrase", "pass phrase", "seed phrase", "recovery phrase", "mnemonic", "니모닉", "복구 구문", "시드 구문"),
        "phrase",
    ),
    "key": "key",
    **dict.fromkeys(
        (
            "secret", "token", "apikey", "api key", "api_key", "api-key", "accesskey", "access key", "access_key",
            "access-key", "authkey", "auth key", "auth_key", "auth-key", "privatekey", "private_key", "private key",
            "private-key", "signingkey", "signing_key", "signing key", "encryptionkey", "encryption_key",
            "encryption key", "accountkey", "account_key", "account key", "sharedaccesskey", "servicekey",
            "service_key", "service key", "license_key", "license key", "serial key", "masterkey", "master_key",
            "master key", "subscription-key", "subscription key", "app_key", "appkey", "consumer_key", "credential",
            "sig=", "x-api-key",
        ),
        "weak",
    ),
    **dict.fromkeys(
        (
            "비밀번호", "비밀 번호", "비번", "암호", "패스워드", "패스프레이즈", "핀번호", "핀 번호",
            "pin번호", "pin 번호",
        ),
        "korean",
    ),
    **dict.fromkeys(("인증번호", "인증 번호", "인증코드", "인증 코드", "보안코드", "otp"), "code"),
    **dict.fromkeys(
        (
            "토큰", "인증키", "인증 키", "api키", "api 키", "시크릿", "액세스키", "액세스 키", "접근키", "접근 키",
            "비밀키", "비밀 키", "개인키", "개인 키", "암호키", "암호 키", "접속키", "서비스키", "서비스 키",
            "라이선스키", "라이선스 키", "시리얼",
        ),
        "korean_weak",
    ),
}  # fmt: skip
"""Label, in small letters, and the kind of rule that looks at what follows."""

WHOLE = frozenset(
    ("pw", "pwd", "pass", "pin", "key", "token", "secret", "otp", "credential", "시리얼", "토큰")
)
"""Labels that count only where a word begins."""

SERVICES = (
    re.compile(r"A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}"),
    re.compile(r"gh[pousr]_[A-Za-z0-9]{30,255}"),
    re.compile(r"github_pat_\w{22,255}"),
    re.compile(r"(?:glpat|gldt|glrt|glcbt|glptt|gloas)-[\w-]{20,255}"),
    re.compile(r"xox[a-z]-[A-Za-z0-9-]{10,255}|xapp-\d-[A-Za-z0-9-]{10,255}|xwfp-[\w-]{10,255}"),
    re.compile(r"sk-(?:proj-|svcacct-|admin-|ant-[a-z0-9]{2,8}-|or-v1-|lf-)?[A-Za-z0-9_-]{20,255}"),
    re.compile(r"(?:sk|rk|pk)_(?:live|test|prod)_[0-9A-Za-z]{16,255}|whsec_[A-Za-z0-9+/=]{16,128}"),
    re.compile(r"hf_[A-Za-z0-9]{24,64}|api_org_[A-Za-z0-9]{24,64}"),
    re.compile(r"AIza[\w-]{30,64}|ya29\.[\w-]{20,512}|GOCSPX-[\w-]{20,64}"),
    re.compile(r"npm_[A-Za-z0-9]{36}|pypi-Ag[\w-]{50,512}|rubygems_[0-9a-f]{48}"),
    re.compile(r"SG\.[\w-]{16,64}\.[\w-]{16,64}"),
    re.compile(r"dapi[0-9a-f]{32}|do[op]_v1_[0-9a-f]{64}|shp(?:at|ss|ca)_[0-9a-fA-F]{32}"),
    re.compile(r"dp\.pt\.[A-Za-z0-9]{40,44}|(?:ntn|secret)_[A-Za-z0-9]{40,60}|lin_api_[A-Za-z0-9]{40}"),
    re.compile(r"gsk_[A-Za-z0-9]{40,64}|pplx-[A-Za-z0-9]{40,64}|xai-[A-Za-z0-9]{40,128}|r8_[A-Za-z0-9]{37}"),
    re.compile(r"hv[sb]\.[\w-]{24,255}|ATATT3x[\w=-]{20,255}|ATBB[A-Za-z0-9]{28,64}|PMAK-[0-9a-f-]{40,80}"),
    re.compile(r"gl(?:sa|c)_[A-Za-z0-9+/=_]{30,255}|nvapi-[\w-]{40,100}|figd_[\w-]{30,64}|sbp_[0-9a-f]{40}"),
    re.compile(
        r"sq0(?:atp|csp)-[\w-]{22,64}|EAAA[\w-]{56,80}|sntrys_[\w=+/.-]{40,512}|tskey-[a-z]+-[\w-]{20,80}"
    ),
    re.compile(r"pscale_(?:tkn|pw|oauth)_[\w.-]{30,80}|key-[0-9a-f]{32}|pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    re.compile(r"lsv2_(?:pt|sk)_[0-9a-f_]{32,80}|dckr_pat_[\w-]{20,64}|ops_eyJ[\w-]{40,2048}"),
    # A web token: two or three parts, of which the first is JSON.
    re.compile(r"eyJ[\w=-]{10,2048}\.[\w=-]{4,4096}(?:\.[\w=+/-]{0,1024})?"),
)
"""Tokens that begin as their service's do."""

_TAIL = r"(?P<tail>(?:[A-Za-z0-9_]|-(?!>)){0,40}+)"
_CLOSE = r"\\?[\"'`\])]{0,3}"
_OPEN = r"(?:[@brfu]{0,2}\\?[\"'`“‘])"
_QUOTED = r"(?P<quoted>[^\"'`“”‘’\r\n\\]{1,512})\\?[\"'`”’]"
_BARE = r"(?P<bare>[^\s\"'`,;&<>|{}]{3,512})"
_DIGITS = (
    r"(?P<digits>\d{4,32})(?![\w.%])"
    r"(?![ -]?(?:char|digit|bit|byte|attempt|time|second|minute|hour|day|week|month|year|word|letter|user|account)"
    r"|[ ]is\b)"
)
_DASH = r" {1,2}(?:-|→|->|=>) {1,2}"
_CELL = r"[ \t]{0,8}(?:\||\t)[ \t]{0,8}"
_ASSIGN = r"[ \t]{0,3}(?::=|=>|->|(?<![=!<>])[:=](?![=:]))[ \t]{0,3}(?:\r?\n[ \t]{0,8})?"
_IS = (
    r"[ \t]{1,3}(?:is|was|=|are|will be|has been|set|changed|reset)(?: now| still| currently| set| to| as){0,2}"
    r"[ \t]{1,3}"
)
_FOR = r"(?: (?:for|to|of|on|at|in)(?: [\w.@'-]{1,30}){1,6}?)?"
_SAYS_END = r"(?=[.!,;]?(?:[ \t]{0,3}(?:\r?\n|\Z)|[.!,;] |[ ](?:and|for|but|so|please)\b))"

FOLLOWS = (
    re.compile(rf"{_TAIL}{_CLOSE}\s{{0,3}}(?:[:=!]{{1,3}}>?|=>|\()\s{{0,3}}{_OPEN}{_QUOTED}", _I),
    re.compile(rf"{_FOR}{_IS}{_OPEN}{_QUOTED}", _I),
    re.compile(rf"{_TAIL}{_CLOSE}(?:{_ASSIGN}|{_CELL}){_DIGITS}", _I),
    re.compile(rf"{_TAIL}{_CLOSE}(?:{_ASSIGN}|{_CELL}){_BARE}", _I),
    re.compile(rf"{_FOR}(?:{_IS}|{_DASH}){_DIGITS}", _I),
    re.compile(rf"{_FOR}(?:{_IS}|{_DASH}|[ ]?: ?){_BARE}", _I),
    re.compile(r"=(?P<word>[A-Za-z]{4,40})(?=[;&\s]|\Z)"),
    re.compile(r"(?::[ \t]{0,3}|[ \t]{1,3}is[ \t]{1,3})(?P<word>[A-Za-z]{4,40})" + _SAYS_END),
)
"""What may stand behind an English label, from its end on."""

BEHIND_SLASH = re.compile(rf"[ \t]{{0,2}}[:= ][ \t]{{0,2}}[^\s/]{{2,40}}[ \t]{{0,2}}/[ \t]{{0,2}}{_BARE}", _I)
"""Behind a label that itself follows a slash: `id/pw: hong / qwer1234`."""

PHRASE = re.compile(
    r"[ \t]{0,2}(?:[:=]|is|are|는|은)[ \t]{0,3}(?:\r?\n[ \t]{0,8})?[\"'`]?"
    r"(?P<value>(?:[a-z]{3,10}[ ,-]{1,2}){3,23}[a-z]{3,10})"
    r"[\"'`]?[.]?[ \t]{0,3}(?=\r?\n|\Z|[\"'`<가-힣])"
)
"""Words that are a secret together."""

KEY = re.compile(r"(?:[ \t]{1,3}is[ \t]{1,3}|[:=][ \t]{0,3})[\"'`]?(?P<value>[A-Za-z0-9+/=_-]{20,256})")
"""Behind a bare `key`."""

JUXTAPOSED = re.compile(rf"[ \t]{{1,2}}{_OPEN}?{_BARE}")
"""Behind `pw` and `pwd` a secret may follow without anything between."""

NOT_THE_SECRET = re.compile(
    r"len|polic|min|max|reset|url|uri|field|name|(?<![a-z])id|label|file|path|dir|type|expir|ttl|timeout|count|attempt|regex"
    r"|pattern|hint|prompt|error|msg|message|input|format|column|placeholder|page|form|version|strength|score|manage"
    r"|generat|handl|service|control|model|schema|valid|encod|algorithm|rule|limit|size|index|ize|usage|budget|endpoint",
    _I,
)
"""Tails of names such as `password_min_length`."""

NAMED = (
    re.compile(r"sshpass\s{1,3}-p\s{0,2}['\"]?(?P<value>[^\s'\"]{3,128})", _I),
    re.compile(
        r"curl\b[^\r\n]{0,200}?\s-(?:u|-user)[ =]['\"]?[^\s:'\"]{1,64}:(?P<value>[^\s'\"]{3,128})", _I
    ),
    re.compile(r"mysql(?:dump|admin)?\b[^\r\n]{0,120}?\s-p(?P<value>[^\s'\"=-]{4,64})", _I),
    re.compile(r"login\s{1,3}\S{1,64}\s{1,3}password\s{1,3}(?P<value>\S{3,128})", _I),
    re.compile(r"(?:sqlplus\s{1,3}(?:-\w\s{1,3}){0,2}|thin:)[\w$#]{1,30}/(?P<value>[^\s/@]{3,64})@", _I),
    re.compile(r"--password[= ]['\"]?(?P<value>(?!-)[^\s'\"]{4,128})", _I),
    re.compile(r"-passin\s{1,3}pass:(?P<value>[^\s'\"]{3,128})", _I),
    re.compile(r"net user\s{1,3}\S{1,64}\s{1,3}(?P<value>(?!/)[^\s'\"]{6,128})", _I),
)
"""Command lines and logins of their own form."""

_KO_SEP = (
    r"(?:\([^)\r\n]{0,20}\))?[\"'`*\]]{0,3}"
    r"(?:[ \t]{0,3}(?:[:=|>]|->|=>|→)[ \t]{0,3}(?:\r?\n[ \t]{0,8})?|\t|[ \t]{0,2}\r?\n[ \t]{0,4}"
    r"|(?:는|은|가|이|을|를|도|란)?[ \t]{1,3}(?:현재 |새로 |임시로 |다시 )?|(?:는|은|가))"
)
_NOT_COUNT = (
    r"(?![\d.,]|[ ]?(?:자리|자|회|번(?!호)|일|개|월|년|분|시|초|가지|종|명|원|건|점|%|~|글자"
    r"|차|단계|조|항|호|위|대))"
)
_KO_VALUE = r"[A-Za-z0-9!@#$%^&*()_+=~?.,;:/\\<>-]{4,128}"
_KO_END = r"(?=(?:입니다|이에요|예요|이고|이며|인데|임(?![가-힣])|이야|야(?![가-힣])|이라|라고)|[ \t]{0,3}(?:\r?\n|\Z))"

KOREAN = (
    re.compile(rf"{_KO_SEP}[\"'“‘「『](?P<quoted>[^\s\"'”’」』]{{2,64}})[\"'”’」』]"),
    re.compile(rf"{_KO_SEP}(?P<digits>\d{{4,32}}){_NOT_COUNT}(?![A-Za-z!@#$%^&*_-])"),
    re.compile(rf"{_KO_SEP}(?P<value>{_KO_VALUE})"),
    re.compile(rf"{_KO_SEP}(?P<word>[A-Za-z]{{4,64}}){_KO_END}"),
)
"""What may stand behind a Korean label of a password."""

_LOOSE = "A-Za-z0-9!#$%^&*_+=.-"
KOREAN_LOOSE = re.compile(
    rf"[가-힣 \t,.:]{{1,24}}+(?P<loose>(?=[{_LOOSE}]{{0,63}}[0-9])(?=[{_LOOSE}]{{0,63}}[A-Za-z])"
    rf"(?=[{_LOOSE}]{{0,63}}[!#$%^&*])[{_LOOSE}]{{6,64}})"
)
"""A few words further on, when it looks like nothing but a password."""

KOREAN_WORD_AND_SIGNS = re.compile(
    r"[ \t]{0,2}(?:[:=]|는|은)[ \t]{0,3}(?P<mixed>[가-힣A-Za-z]{1,20}[0-9!@#$%^&*]{2,20})"
    r"(?=\s|\Z|[,.]|입니다|이고|이에요|예요)"
)
"""`홍길동1234!`"""

KOREAN_BEHIND_SLASH = re.compile(rf"{_KO_SEP}[^\s/|]{{2,40}}[ \t]{{0,2}}/[ \t]{{0,2}}(?P<value>{_KO_VALUE})")
"""The same behind a slash: `아이디/비번: hong / 1234abcd`."""

KOREAN_KEY = re.compile(rf"{_KO_SEP}[\"'“‘]?(?P<value>[A-Za-z0-9+/=._~-]{{12,1024}})")
"""Behind a Korean label of a key or token."""

KOREAN_CODE = re.compile(rf"{_KO_SEP}[\"'“‘\[(<]?(?P<digits>\d{{4,8}}){_NOT_COUNT}")
"""Behind a Korean label of a one-time code."""
