"""The meaning of an answer, the pause before a retry, and the allowed addresses: pure."""

from datetime import datetime, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from querypulse.alerting.receivers.http import (
    HttpPoster,
    parse_retry_after,
    wait_asked_for,
)
from querypulse.alerting.receivers.receiver import public_part
from querypulse.alerting.retries import MAX_RETRY_AFTER_SECONDS
from querypulse.core.secret import Secret

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        (" 5 ", 5.0),
        ("0", 0.0),
        ("9" * 5000, MAX_RETRY_AFTER_SECONDS),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        ("", None),
        (None, None),
        ("soon", None),
        (format_datetime(datetime.fromtimestamp(NOW + 30, timezone.utc), usegmt=True), 30.0),
        (format_datetime(datetime.fromtimestamp(NOW - 30, timezone.utc), usegmt=True), 0.0),
        ("Sun Nov  6 08:49:37 1994", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER_SECONDS),
    ],
)
def test_retry_after_is_seconds_or_a_date(text, seconds):
    """Both forms of RFC 9110 are parsed with an upper limit; anything else is ignored."""
    assert parse_retry_after(text, NOW) == seconds


@pytest.mark.fault(
    "Receivers", "Any text as `Retry-After`", "It is ignored, or a pause of at most five minutes"
)
@given(st.text())
def test_retry_after_never_raises(text):
    """Whatever a server sends, the result is None or a limited number of seconds."""
    seconds = parse_retry_after(text, NOW)

    assert seconds is None or 0 <= seconds <= MAX_RETRY_AFTER_SECONDS


def test_429_without_retry_after_still_means_a_pause():
    """PagerDuty throttles without stating for how long."""
    assert wait_asked_for(429, None, NOW) == 5.0
    assert wait_asked_for(429, "7", NOW) == 7.0
    assert wait_asked_for(503, None, NOW) is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example.com/services/T/B/x?y=z", "https://hooks.example.com"),
        ("https://me:pw@example.com:8443/x", "https://example.com:8443"),
        ("http://localhost:9093/x", "http://localhost:9093"),
        ("http://127.8.8.8/x", "http://127.8.8.8"),
        ("http://[::1]:80/x", "http://[::1]:80"),
    ],
)
def test_only_scheme_host_and_port_of_a_url_are_shown(url, shown):
    """User info, path and query may all be secrets."""
    assert public_part(url, setting="webhook_url") == shown


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/secret-path",
        "http://localhost.example.com/secret-path",
        "ftp://example.com/secret-path",
        "example.com/secret-path",
        "https:///secret-path",
        "https://me:secret-path/x@example.com",
        "https://*/secret-path",
        "https://[::1/secret-path",
        "",
    ],
)
def test_bad_url_error_names_its_setting(url):
    """The error names the setting and shows nothing secret."""
    with pytest.raises(ValueError, match="webhook_url") as caught:
        HttpPoster(Secret(url), setting="webhook_url")

    assert "secret" not in str(caught.value)


def test_plain_http_to_another_machine_must_be_allowed():
    """With allow_http, trusting the network is the user's decision."""
    assert public_part("http://hook:80/x", setting="s", allow_http=True) == "http://hook:80"
