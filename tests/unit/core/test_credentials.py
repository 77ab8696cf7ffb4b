"""No password of an address is shown, whether the address is valid or not."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shoestring.core.values.credentials import hide_credentials


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:hush@host/db", "postgresql://me:***@host/db"),
        (
            "postgresql://me@host:5432/db?password=hush&sslmode=on",
            "postgresql://me@host:5432/db?password=***&sslmode=on",
        ),
        ("postgresql://me:hush@[::1]:5/db?pass%77ord=hush", "postgresql://me:***@[::1]:5/db?pass%77ord=***"),
        (
            "postgresql://me@host/db?sslpassword=hush hush&passfile=/x",
            "postgresql://me@host/db?sslpassword=***&passfile=/x",
        ),
        ("s3://bucket/runs?access_key=hush", "s3://bucket/runs?access_key=***"),
        ("postgres://me:hush@hush@host/db", "postgres://me:***@host/db"),  # this and the following are not valid
        ("postgres://me:hu?sh@host/db", "postgres://me:***"),
        ("postgres://me:hu/sh@host/db", "postgres://me:***@host/db"),
        ("postgres://me:12/hush@host/db", "postgres://me:***@host/db"),
        ("postgres://me:hush@host:port/db", "postgres://me:***@host:port/db"),
        ("postgres://host:1/db?password=hush@hush", "postgres://host:***"),
        ("postgres://host/db?password=hush:hush@hush", "postgres://host/db?password=***"),
        ("postgresql//me:hush@host", "postgresql//me:***@host"),
        ("postgres:me:hush@host", "postgres:***@host"),
        ("host=h password=hush user=me", "host=h password=*** user=me"),
        ("host=h password = 'hush hush' user=me", "host=h password = *** user=me"),
    ],
)
def test_secrets_are_hidden(address: str, shown: str) -> None:
    assert hide_credentials(address) == shown


@pytest.mark.parametrize(
    "address",
    [
        "runs/study.db",
        "C:\\runs\\study.db",
        "sqlite:////data/10:30@night.db?vfs=unix",
        "postgresql://[::1]:5432/db",
        "sftp://me@host/runs",
    ],
)
def test_addresses_without_a_secret_are_not_changed(address: str) -> None:
    assert hide_credentials(address) == address


@given(st.text(alphabet="ab:/?#@&=% .", max_size=12), st.sampled_from(["postgresql://", "postgres:/", "pg//", ""]))
def test_a_password_before_the_host_is_hidden_whatever_else_it_has(noise: str, scheme: str) -> None:
    assume(scheme or not noise.startswith("//"))  # else `me` is the scheme
    assert "HUSH" not in hide_credentials(f"{scheme}me:{noise}HUSH{noise}@host/db")
