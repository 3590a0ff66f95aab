"""A secret is never printed and follows changes of its file."""

import os

import pytest

from querypulse.core.secret import Secret

SETTING = "webhook_secret_file"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "secret"
    path.write_text("first\n")
    return path


def test_swapped_link_is_read_again_with_equal_size_and_time(tmp_path):
    """Kubernetes rotates a mounted secret in this way."""
    link = tmp_path / "secret"
    for name in ("first", "other"):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (1, 1))
    link.symlink_to(tmp_path / "first")
    secret = Secret.from_file(link, setting=SETTING)
    link.unlink()
    link.symlink_to(tmp_path / "other")

    assert secret.reveal() == "other"


@pytest.mark.parametrize("broken", [b"", b" \n", b"\xff\xfe\xfa"])
def test_broken_file_keeps_the_last_good_value(path, broken):
    secret = Secret.from_file(path, setting=SETTING)
    path.write_bytes(broken)
    assert secret.reveal() == "first"
    assert ("UTF-8" in secret.problem) == (broken == b"\xff\xfe\xfa")
    path.write_text("the next one")

    assert secret.reveal() == "the next one"


@pytest.mark.fault(
    "Settings", "A secret where the path of its file belongs", "The error does not show it"
)
@pytest.mark.parametrize(
    "secret", ["R0hunter2", "https://hooks.example/T0/hunter2", "whsec_hunter2"]
)
def test_secret_given_as_its_file_is_not_shown(secret):
    with pytest.raises(ValueError, match=f"{SETTING}: cannot read a file") as error:
        Secret.from_file(secret, setting=SETTING)

    assert "hunter2" not in str(error.value)


@pytest.mark.fault(
    "Disk, port and mounts", "A secret file vanishes", "The last good value stays in use"
)
def test_missing_file_keeps_the_last_good_value(path):
    secret = Secret.from_file(path, setting=SETTING)
    path.unlink()
    assert secret.reveal() == "first"
    path.write_text("back again")

    assert secret.reveal() == "back again"


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff"])
def test_file_without_a_secret_is_refused_at_the_start(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"^{SETTING}: .*(is empty|is not UTF-8)"):
        Secret.from_file(path, setting=SETTING)


def test_secret_is_masked_when_printed(path):
    for secret in (Secret("first"), Secret.from_file(path, setting=SETTING)):
        assert "first" not in f"{secret!r} {secret} {[secret]}"
