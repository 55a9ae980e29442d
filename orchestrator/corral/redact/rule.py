"""The key families that are known by their looks: what they begin with, what follows, and who says so.

Every rule hangs on a literal, so that one pass of an automaton over the text finds the few places worth a look. What
follows is a run of one class of characters, and where that is not enough a bounded pattern: nothing backtracks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

WORD = "0-9A-Za-z"
NAME = r"0-9A-Za-z_\-"
B64 = "0-9A-Za-z+/="
_VALUE = r"0-9A-Za-z._~+/=!@#%^&*-"
_SET = r"[\"']?[ \t]{0,3}(?::|=>?|:=)[ \t]{0,3}[\"']?"
"""What stands between a name and its value: `=`, `:` with quotes, as in files, headers, JSON, code."""
_OPEN = r"[\"']?[ \t]{0,3}[:=>]{0,2}[ \t]{0,3}[\"']?"
"""The beginning of that, and what may follow."""


@dataclass(frozen=True)
class Rule:
    """One family. A hit is a literal, then `least` to `most` characters of `run`, then `rest`."""

    name: str
    """As the placeholder says it."""
    literals: tuple[str, ...]
    run: str
    """Characters of a class, as between the brackets of a pattern."""
    least: int
    source: str
    """Who says that keys look so."""
    most: int | None = None
    rest: str = ""
    """Matched where the run ends. With a group `v` only that is the secret."""
    before: str = ""
    """What must stand right before the literal, in at most 64 bytes. It is shown."""
    glued: bool = False
    """The literal may follow a letter or digit."""
    digits: int = 0
    """So many digits it must have: words joined by hyphens are no key."""
    mixed: bool = False
    """The secret has letters and digits, unlike a name in code."""
    scope: str = ""
    """With `rest`: as long as this pattern reaches the end of what is there, more may decide."""

    @cached_property
    def run_pattern(self) -> re.Pattern[bytes]:
        return re.compile(f"[{self.run}]*+".encode() if self.run else b"")

    @cached_property
    def rest_pattern(self) -> re.Pattern[bytes] | None:
        return re.compile(self.rest.encode()) if self.rest else None

    @cached_property
    def scope_pattern(self) -> re.Pattern[bytes]:
        return re.compile((self.scope or f"[{self.run}]*+").encode())

    @cached_property
    def before_pattern(self) -> re.Pattern[bytes] | None:
        return re.compile(rf"(?:{self.before})\Z".encode()) if self.before else None


RULES: tuple[Rule, ...] = (
    # Forges and code
    Rule("github-token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), WORD, 30, "GitHub docs, token formats"),
    Rule("github-token", ("github_pat_",), WORD + "_", 40, "GitHub docs, fine-grained personal access tokens"),
    Rule(
        "gitlab-token",
        ("glpat-", "gloas-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-", "glsoat-"),
        NAME + ".",
        20,
        "GitLab docs, token prefixes",
    ),
    Rule("bitbucket-token", ("ATBB", "ATCTT3xFfG"), NAME + "=", 24, "Atlassian docs, app passwords", digits=2),
    Rule("atlassian-token", ("ATATT3xFfG",), NAME + "=", 60, "Atlassian docs, API tokens"),
    Rule("npm-token", ("npm_",), WORD, 36, "npm docs, granular access tokens", most=36),
    Rule("pypi-token", ("pypi-AgE",), NAME, 50, "PyPI help, API tokens (a macaroon)"),
    Rule("rubygems-key", ("rubygems_",), "0-9a-f", 40, "RubyGems guides, API keys"),
    Rule("crates-token", ("cio",), WORD, 32, "crates.io blog, new token format", most=32, digits=2),
    Rule("docker-token", ("dckr_pat_", "dckr_oat_"), NAME, 20, "Docker docs, access tokens"),
    # Clouds
    Rule("aws-key-id", ("AKIA", "ASIA"), "0-9A-Z", 16, "AWS IAM docs, unique identifiers", most=16),
    Rule(
        "aws-secret-key",
        ("SECRET_ACCESS_KEY", "secret_access_key", "SecretAccessKey", "secretAccessKey"),
        "",
        0,
        "AWS IAM docs: 40 characters of Base64, known by their name",
        rest=rf"{_SET}(?P<v>[0-9A-Za-z/+]{{40}})(?![0-9A-Za-z/+=])",
        glued=True,
        scope=_OPEN + r"[0-9A-Za-z/+=]*+",
    ),
    Rule("google-api-key", ("AIza",), NAME, 35, "Google Cloud docs, API keys"),
    Rule("google-oauth-secret", ("GOCSPX-",), NAME, 20, "Google Identity docs, OAuth clients"),
    Rule("google-oauth-token", ("ya29.",), NAME + ".", 30, "Google Identity docs, access tokens"),
    Rule(
        "azure-storage-key",
        ("AccountKey=", "SharedAccessKey="),
        B64,
        40,
        "Azure docs, storage and service bus connection strings",
        glued=True,
    ),
    Rule("digitalocean-token", ("dop_v1_", "doo_v1_", "dor_v1_"), "0-9a-f", 64, "DigitalOcean docs, token prefixes"),
    Rule("alibaba-key-id", ("LTAI",), WORD, 12, "Alibaba Cloud docs, AccessKey pairs", most=26, digits=1),
    Rule("tencent-key-id", ("AKID",), WORD, 32, "Tencent Cloud docs, API keys", most=32),
    Rule("cloudflare-token", ("cfut_", "cfat_", "v1.0-"), NAME, 40, "Cloudflare docs, API tokens", digits=4),
    Rule("heroku-key", ("HRKU-",), NAME, 36, "Heroku docs, API key prefix"),
    Rule("fly-token", ("FlyV1 fm2_", "fm2_lJPE"), B64 + "_", 40, "Fly.io docs, access tokens"),
    Rule("databricks-token", ("dapi",), "0-9a-f", 32, "Databricks docs, personal access tokens", most=32),
    Rule("planetscale-token", ("pscale_tkn_", "pscale_pw_", "pscale_oauth_"), NAME + ".", 32, "PlanetScale docs"),
    Rule("supabase-key", ("sbp_", "sb_secret_"), NAME, 20, "Supabase docs, API keys", digits=2),
    Rule("vercel-token", ("vcp_", "vci_", "vca_"), WORD, 24, "Vercel docs, token formats", digits=2),
    # Models
    Rule("anthropic-key", ("sk-ant-",), NAME, 20, "Anthropic docs, API keys"),
    Rule("openai-key", ("sk-",), NAME, 20, "OpenAI docs, API keys; many others copy it", digits=2),
    Rule("huggingface-token", ("hf_", "api_org_"), WORD, 30, "Hugging Face docs, user access tokens"),
    Rule("groq-key", ("gsk_",), WORD, 40, "Groq console"),
    Rule("xai-key", ("xai-",), WORD, 40, "xAI docs"),
    Rule("nvidia-key", ("nvapi-",), NAME, 40, "NVIDIA NGC docs"),
    Rule("replicate-token", ("r8_",), WORD, 30, "Replicate docs"),
    Rule("perplexity-key", ("pplx-",), WORD, 40, "Perplexity docs"),
    Rule("tavily-key", ("tvly-",), NAME, 16, "Tavily docs", digits=2),
    Rule("daytona-key", ("dtn_",), WORD, 12, "Daytona docs", digits=2),
    Rule("e2b-key", ("e2b_",), "0-9a-f", 32, "E2B docs"),
    # Payment, mail, chat, work
    Rule(
        "stripe-key",
        ("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"),
        WORD,
        16,
        "Stripe docs, API keys and webhook secrets",
    ),
    Rule("square-token", ("sq0atp-", "sq0csp-"), NAME, 20, "Square docs"),
    Rule("shopify-token", ("shpat_", "shpca_", "shppa_", "shpss_"), "0-9a-fA-F", 32, "Shopify docs, access tokens"),
    Rule(
        "slack-token",
        ("xoxb-", "xoxp-", "xoxa-", "xoxe-", "xoxe.xox", "xoxo-", "xoxr-", "xoxs-", "xoxc-", "xoxd-", "xapp-"),
        NAME + "%.",
        10,
        "Slack docs, token types",
        digits=2,
    ),
    Rule("slack-webhook", ("hooks.slack.com/",), NAME + "/", 28, "Slack docs, incoming webhooks", glued=True),
    Rule("discord-webhook", ("discord.com/api/webhooks/",), NAME + "/", 60, "Discord docs", glued=True),
    Rule(
        "telegram-token",
        (":AA",),
        NAME,
        33,
        "Telegram docs, bot tokens",
        before=r"(?:(?<![0-9A-Za-z])|(?<=\\[nrt]))[0-9]{8,10}",
        glued=True,
    ),
    Rule(
        "sendgrid-key",
        ("SG.",),
        NAME,
        16,
        "SendGrid docs, API keys",
        rest=r"\.[0-9A-Za-z_-]{16,}+",
        scope=r"[0-9A-Za-z_.-]*+",
    ),
    Rule("mailgun-key", ("key-",), "0-9a-f", 32, "Mailgun docs", most=32),
    Rule("twilio-key-id", ("SK",), "0-9a-f", 32, "Twilio docs, API keys", most=32, digits=4),
    Rule("linear-key", ("lin_api_", "lin_oauth_"), WORD, 32, "Linear docs"),
    Rule("notion-token", ("ntn_", "secret_"), WORD, 40, "Notion docs", digits=2),
    Rule("figma-token", ("figd_", "figu_"), NAME, 32, "Figma docs"),
    Rule("postman-key", ("PMAK-",), NAME, 40, "Postman docs"),
    # Operations
    Rule("vault-token", ("hvs.", "hvb.", "hvr."), NAME, 24, "HashiCorp Vault docs, token prefixes"),
    Rule("terraform-token", (".atlasv1.",), NAME, 60, "HCP Terraform docs", before=r"[0-9A-Za-z]{14}", glued=True),
    Rule("pulumi-token", ("pul-",), "0-9a-f", 40, "Pulumi docs", most=40),
    Rule("grafana-token", ("glsa_", "glc_"), B64 + "_", 32, "Grafana docs, service account tokens"),
    Rule("newrelic-key", ("NRAK-", "NRII-", "NRJS-"), WORD + "-", 19, "New Relic docs, API keys"),
    Rule("sentry-token", ("sntrys_", "sntryu_"), B64 + "_", 40, "Sentry docs, auth tokens"),
    Rule("doppler-token", ("dp.pt.", "dp.st.", "dp.ct.", "dp.sa."), WORD + "._-", 40, "Doppler docs"),
    Rule("1password-token", ("ops_eyJ",), B64 + NAME, 60, "1Password docs, service accounts"),
    Rule("age-key", ("AGE-SECRET-KEY-1",), "0-9A-Z", 50, "age, file format"),
    Rule(
        "putty-key",
        ("Private-Lines: ",),
        "0-9",
        1,
        "PuTTY docs, private key format",
        rest=r"(?P<v>(?:(?:\r?\n|(?:\\r)?\\n)[0-9A-Za-z+/]{1,64}+={0,2}+(?=[\r\n\\]|\Z))++)",
        scope=r"[0-9A-Za-z+/=\r\n\\]*+",
        glued=True,
    ),
    Rule(
        "json-web-token",
        ("eyJ",),
        NAME,
        10,
        'RFC 7519: a header and a payload that begin with `{"`',
        rest=r"\.eyJ[0-9A-Za-z_-]{10,}+\.[0-9A-Za-z_-]{10,}+",
        scope=r"[0-9A-Za-z_.-]*+",
    ),
    # Known by what stands around them
    Rule(
        "url-password",
        ("://",),
        r"0-9A-Za-z._~%!&*+,;=-",
        0,
        "RFC 3986, userinfo",
        rest=r":(?P<v>[0-9A-Za-z._~%!&*+,;=#?^|-]{3,256})@[0-9A-Za-z\[]",
        glued=True,
        scope=r"[!#-&(-;=?-~]*+",
    ),
    Rule(
        "authorization",
        ("uthorization", "UTHORIZATION"),
        "",
        0,
        "RFC 9110, credentials",
        rest=rf"{_SET}(?:[Bb]asic|[Bb]earer|[Tt]oken|BASIC|BEARER)[ \t]{{1,3}}(?P<v>[0-9A-Za-z._~+/=-]{{8,}}+)",
        glued=True,
        scope=_OPEN + r"[A-Za-z]{0,6}+[ \t]{0,3}[0-9A-Za-z._~+/=-]*+",
    ),
    Rule(
        "api-key-header",
        ("-Api-Key", "-api-key", "-API-Key", "-API-KEY", "-Auth-Token", "-auth-token", "PRIVATE-TOKEN", "-Key-Id"),
        "",
        0,
        "headers of many services",
        rest=rf"{_SET}(?P<v>[{NAME}.+/=]{{16,}}+)",
        mixed=True,
        glued=True,
        scope=_OPEN + rf"[{NAME}.+/=]*+",
    ),
    Rule(
        "netrc-password",
        ("machine ",),
        "!-~",
        1,
        "GNU inetutils, .netrc",
        rest=r"[ \t]{1,8}login[ \t]{1,8}[!-~]{1,255}[ \t]{1,8}password[ \t]{1,8}(?P<v>[!#-&(-+.-:<-\[\]-~-]{1,255})",
        scope=r"[ -~\t]{0,600}+",
    ),
    Rule(
        "named-secret",
        ("SECRET", "TOKEN", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "PRIVATE_KEY", "ACCESS_KEY"),
        "A-Z0-9_",
        0,
        "variables that say in capitals that they are secret",
        rest=rf"{_SET}(?P<v>[{_VALUE}]{{16,}}+)",
        mixed=True,
        glued=True,
        scope="[A-Z0-9_]*+" + _OPEN + rf"[{_VALUE}]*+",
    ),
)
