"""What is masked by its looks, and what only looks like it. Case C200."""

from __future__ import annotations

import json

import pytest

from corral.redact import Redactor
from corral.redact.rule import RULES

A36, HEX32, HEX64 = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8", "0123456789abcdef" * 2, "0123456789abcdef" * 4

KEYS = {
    "github-token": "ghp_" + A36,
    "gitlab-token": "glpat-" + A36,
    "bitbucket-token": "ATBB" + A36,
    "atlassian-token": "ATATT3xFfG" + A36 * 2,
    "npm-token": "npm_" + A36,
    "pypi-token": "pypi-AgE" + A36 * 2,
    "rubygems-key": "rubygems_" + HEX32 + "01234567",
    "crates-token": "cio" + A36[:32],
    "docker-token": "dckr_pat_" + A36,
    "aws-key-id": "AKIAIOSFODNN7EXAMPLE",
    "aws-secret-key": "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "google-api-key": "AIza" + A36,
    "google-oauth-secret": "GOCSPX-" + A36,
    "google-oauth-token": "ya29." + A36,
    "azure-storage-key": "AccountKey=" + A36 * 2 + "==",
    "digitalocean-token": "dop_v1_" + HEX64,
    "alibaba-key-id": "LTAI5tABCDEFGHIJ",
    "tencent-key-id": "AKID" + A36[:32],
    "cloudflare-token": "cfut_" + A36 * 2,
    "heroku-key": "HRKU-" + A36,
    "fly-token": "fm2_lJPE" + A36 * 2,
    "databricks-token": "dapi" + HEX32,
    "planetscale-token": "pscale_tkn_" + A36,
    "supabase-key": "sbp_" + HEX32,
    "vercel-token": "vcp_" + A36,
    "anthropic-key": "sk-ant-api03-" + A36,
    "openai-key": "sk-proj-" + A36,
    "huggingface-token": "hf_" + A36,
    "groq-key": "gsk_" + A36 + A36,
    "xai-key": "xai-" + A36 + A36,
    "nvidia-key": "nvapi-" + A36 + A36,
    "replicate-token": "r8_" + A36,
    "perplexity-key": "pplx-" + A36 + A36,
    "tavily-key": "tvly-0000000000000000",
    "daytona-key": "dtn_000000000000",
    "e2b-key": "e2b_" + HEX32,
    "stripe-key": "sk_live_" + A36,
    "square-token": "sq0atp-" + A36,
    "shopify-token": "shpat_" + HEX32,
    "slack-token": "xoxb-0000000000-abcdef",
    "slack-webhook": "https://hooks.slack.com/services/T00000000/B00000000/" + A36,
    "discord-webhook": "https://discord.com/api/webhooks/123456789012345678/" + A36 * 2,
    "telegram-token": "1234567890:AA" + A36,
    "sendgrid-key": "SG." + A36 + "." + A36,
    "mailgun-key": "key-" + HEX32,
    "twilio-key-id": "SK" + HEX32,
    "linear-key": "lin_api_" + A36,
    "notion-token": "ntn_" + A36 + A36,
    "figma-token": "figd_" + A36,
    "postman-key": "PMAK-" + A36 + A36,
    "vault-token": "hvs." + A36,
    "terraform-token": "a1B2c3D4e5F6g7.atlasv1." + A36 * 2,
    "pulumi-token": "pul-" + HEX32 + "01234567",
    "grafana-token": "glsa_" + A36,
    "newrelic-key": "NRAK-" + A36,
    "sentry-token": "sntrys_" + A36 * 2,
    "doppler-token": "dp.pt." + A36 * 2,
    "1password-token": "ops_eyJ" + A36 * 2,
    "age-key": "AGE-SECRET-KEY-1" + "Q3" * 29,
    "putty-key": "Private-Lines: 2\n" + A36 + "\n" + A36 + "==\nPrivate-MAC: 1",
    "json-web-token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "url-password": "https://user:pass@example.org/x.git",
    "authorization": "Authorization: Basic dXNlcjpwYXNz",
    "api-key-header": "X-Api-Key: " + A36,
    "netrc-password": "machine example.org login me password hunter22",
    "named-secret": "MY_TOKEN=" + HEX32,
}
NUMBERS = {
    "4111111111111111": "card",
    "4111 1111 1111 1111": "card",
    "5555-5555-5555-4444": "card",
    "3782 822463 10005": "card",
    "6205 5000 0000 0000 004": "card",
    "+49 30 1234567": "phone",
    "+1 (202) 555-0172": "phone",
    "(202) 555-0172": "phone",
    "202-555-0172": "phone",
    "13800138001": "phone",
    "138 0013 8001": "phone",
    "11010519491231002X": "identity",
    "11010519491231002x": "identity",
    "212-09-9998": "identity",
    "529.982.247-25": "identity",
    "1 85 05 78 006 084 91": "identity",
    "DE89370400440532013000": "account",
    "GB29 NWBK 6016 1331 9268 19": "account",
}
HARMLESS = (
    "task-force",
    "ASIAPACIFIC",
    "sk-fading-circle-animation-of-a-spinner",
    "disk-a1b2c3d4e5f6a7b8c9d0e1f2",
    "token = get_token_from(request)",
    "API_KEY = os.environ_reader_2024x1('x')",
    "MAX_TOKENS = 128000000000000000000",
    '"Authorization": "Bearer " + token',
    "https://example.org:8080/path@v2",
    'marker = "-----BEGIN PRIVATE KEY-----"',
    "17179869184",  # 16 GiB
    "2026-12-01 02:00:11.123456789",
    "1764554411123456789",
    "1764554411123",
    "3.14159265358979323846",
    "0.4111111111111111",
    "d41d8cd98f00b204e9800998ecf8427e",
    "12345678-1234-1234-1234-123456789012",
    "4111 1111 1111 1112",
    "DE89370400440532013001",
    "900-09-9998",
    "@@ -1,3 +12345678,7 @@",
    "+1 2 3 4 5 6 7 8 9 10",
    "192.168.100.200",
)


def redactor() -> Redactor:
    return Redactor(mark=583201)


def test_every_family_has_an_example() -> None:
    assert {*KEYS} == {rule.name for rule in RULES}
    assert all(rule.source for rule in RULES)


@pytest.mark.parametrize("around", [("", ""), ("\n", "\n"), ('{"x":"', '"}'), ("a ", ", b"), ("x=1;", ";")])
@pytest.mark.parametrize("name", KEYS)
def test_a_key_of_each_family_is_masked(name: str, around: tuple[str, str]) -> None:
    before, after = around
    masked = redactor().text(before + KEYS[name] + after)
    assert f"[secret:{name}#1~583201]" in masked
    assert masked.startswith(before) and masked.endswith(after)


@pytest.mark.parametrize("name", KEYS)
def test_a_key_after_an_escape_is_masked(name: str) -> None:
    masked = redactor().text(json.dumps(f"one\n{KEYS[name]}\ntwo"))
    assert f"[secret:{name}#1~583201]" in masked
    assert (json.loads(masked)[:4], json.loads(masked)[-4:]) == ("one\n", "\ntwo")


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_of_persons_are_masked(number: str) -> None:
    expected = f"a [personal:{NUMBERS[number]}#1~583201], b"
    assert redactor().text(f"a {number}, b") == expected
    assert Redactor(numbers=False).text(number) == number


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert redactor().text(f"see {text} there") == f"see {text} there"


BODY = "MIIEowIBAAKCAQEAr0ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrst"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{BODY}\n{BODY}\nab==\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    "spelled",
    [
        PEM,
        PEM.replace("\n", "\r\n"),
        json.dumps(PEM)[1:-1],
        "\n".join(f"{number:6}\t{line}" for number, line in enumerate(PEM.splitlines(), 1))[7:],
        PEM.replace("\n", "\n+"),
        PEM.replace("\n", "\n    "),
        PEM.removesuffix("-----END RSA PRIVATE KEY-----").rstrip(),  # cut
    ],
)
def test_a_private_key_is_masked_as_a_whole(spelled: str) -> None:
    assert redactor().text(f"<{spelled}>") == "<[secret:private-key#1~583201]>"


def test_the_same_value_has_the_same_placeholder_and_another_has_another() -> None:
    one, two = "ghp_" + A36, "ghp_" + A36[::-1]
    assert redactor().text(f"{one} {two} {one}").split() == [
        f"[secret:github-token#{number}~583201]" for number in (1, 2, 1)
    ]


def test_the_box_cannot_know_a_placeholder_before() -> None:
    assert len({Redactor().mark for _ in range(50)}) > 10


def test_the_memory_of_placeholders_is_bounded() -> None:
    one = redactor()
    for number in range(10_050):
        last = one.text(f"tvly-{number:020d}")
    assert last == "[secret:tavily-key#more~583201]"


def test_what_is_found_is_counted() -> None:
    one = redactor()
    one.text(f"{KEYS['github-token']} {KEYS['npm-token']}")
    assert one.count == 2


def test_text_without_a_find_is_the_same_object() -> None:
    text = "nothing to see in here"
    assert redactor().text(text) is text


def test_half_a_surrogate_pair_does_no_harm() -> None:
    assert redactor().text("\ud800 ghp_" + A36) == "\ud800 [secret:github-token#1~583201]"
