"""Sizes, lengths and counts: what is accepted, what is refused, and that numbers survive the round trip."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.specs.errors import SpecError, UnitError
from cost_models.specs.units import (
    format_bytes,
    format_seconds,
    format_tokens,
    parse_bytes,
    parse_count,
    parse_positive_int,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("80GB", 80 * 10**9),
        ("80 GB", 80 * 10**9),
        ("80G", 80 * 10**9),
        ("80g", 80 * 10**9),
        ("80gb", 80 * 10**9),
        ("80", 80 * 10**9),
        (" 79.5 ", 79_500_000_000),
        ("80GiB", 80 * 2**30),
        ("80Gi", 80 * 2**30),
        ("80e9B", 80 * 10**9),
        ("80000000000B", 80 * 10**9),
        ("81559MiB", 81559 * 2**20),
        ("1.5TB", 1_500_000_000_000),
        ("2TiB", 2 * 2**40),
        ("512kB", 512_000),
        ("1B", 1),
    ],
)
def test_sizes_are_read_decimal_or_binary_by_their_unit(text: str, expected: int) -> None:
    """GB and G are 1e9, GiB is 2**30, a bare number is GB."""
    assert parse_bytes(text).bytes == expected


@pytest.mark.parametrize(
    "text",
    ["", "eight", "GB", "80 XB", "80Gb", "80Mb", "0", "0GB", "-80GB", "nan", "inf", "infGB", "1e999GB", "1e30GB"]
    + ["80GB80", "80,5GB", "0x50GB", "٨٠GB", "80GBB", "0.4B", "1e5000B"],
)
def test_bad_sizes_are_refused_by_name_and_value(text: str) -> None:
    """A size that cannot be meant is refused, and the message names the field and repeats what was written."""
    with pytest.raises(UnitError, match="^mem must be ") as caught:
        parse_bytes(text)
    assert repr(text) in str(caught.value)


def test_bits_are_refused_with_the_spelling_of_bytes() -> None:
    """80Gb is eighty gigabits; the message offers 80GB."""
    with pytest.raises(UnitError, match=r"which is bits; did you mean '80GB'\?"):
        parse_bytes("80Gb")


@pytest.mark.parametrize(("text", "is_nominal"), [("80GB", True), ("80G", True), ("80", True), ("80e9B", False)])
def test_the_way_memory_is_sold_is_recognised(text: str, is_nominal: bool) -> None:
    """Only sizes in GB can stand for the label of a card."""
    assert parse_bytes(text).is_nominal is is_nominal


def test_the_reading_says_what_was_understood() -> None:
    """The reading gives GiB and bytes, and says so when the unit was assumed."""
    assert parse_bytes("80GB").reading == "80GB = 74.5 GiB (80000000000 bytes)"
    assert "a bare number is GB" in parse_bytes("80").reading


@given(st.integers(1, 10**17))
def test_a_size_in_bytes_survives_the_round_trip(size_bytes: int) -> None:
    """Any whole number of bytes written with B is read back exactly."""
    assert parse_bytes(f"{size_bytes}B").bytes == size_bytes


@given(st.integers(1, 10**17))
def test_a_formatted_size_is_read_back_within_rounding(size_bytes: int) -> None:
    """format_bytes writes what parse_bytes reads, to half a percent."""
    assert parse_bytes(format_bytes(size_bytes)).bytes == pytest.approx(size_bytes, rel=0.006)


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused_with_a_spec_error(text: str) -> None:
    """No text makes a parser fail in another way."""
    for parse in (parse_bytes, parse_count, parse_positive_int):
        try:
            parse(text)
        except SpecError as error:
            assert " must be " in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("text", "budget", "expected"),
    [
        ("8192", False, 8192),
        ("8k", False, 8192),
        ("8K", False, 8192),
        ("128k", False, 131_072),
        ("1M", False, 1_048_576),
        ("0.5k", False, 512),
        ("4M", False, 4_194_304),
        ("15T", True, 15 * 10**12),
        ("300B", True, 300 * 10**9),
        ("8k", True, 8000),
        ("1.5T", True, 1_500_000_000_000),
    ],
)
def test_suffixes_are_binary_for_lengths_and_decimal_for_budgets(text: str, budget: bool, expected: int) -> None:
    """8k tokens of context are 8192; 15T tokens of training are 15e12."""
    assert parse_count(text, budget=budget) == expected


@pytest.mark.parametrize("text", ["", "0", "-8k", "1.3k", "8.5", "8kk", "8T", "nan", "1e300", "eight"])
def test_bad_lengths_are_refused(text: str) -> None:
    """A length is a whole number >= 1."""
    with pytest.raises(UnitError, match="^seq_len must be a whole number"):
        parse_count(text)


@pytest.mark.parametrize("text", ["0", "-3", str(10**15), "10000001", "1.5", "eight", "", "8 8", "1e3", "9" * 4000])
def test_gpu_counts_out_of_range_are_refused_with_the_range(text: str) -> None:
    """The message gives the range, and absurd counts are refused."""
    with pytest.raises(UnitError, match="^gpus must be a whole number from 1 to 10000000, got"):
        parse_positive_int(text)


@given(st.integers(1, 10_000_000))
def test_every_gpu_count_in_range_is_accepted(gpus: int) -> None:
    """Text and number are read alike."""
    assert parse_positive_int(str(gpus)) == parse_positive_int(gpus) == gpus


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (format_bytes(79.1 * 2**30), "79.1 GiB"),
        (format_bytes(178.35 * 2**30), "178.3 GiB"),
        (format_bytes(1.25 * 2**40), "1.25 TiB"),
        (format_bytes(12), "12 B"),
        (format_seconds(12.34), "12.3 s"),
        (format_seconds(0.45), "450 ms"),
        (format_seconds(8.4e-6), "8.4 us"),
        (format_tokens(16_777_216), "16.8M"),
        (format_tokens(15e12), "15T"),
        (format_tokens(8192), "8192"),
    ],
)
def test_numbers_are_written_short(written: str, expected: str) -> None:
    """Three significant digits are kept, trailing zeros dropped."""
    assert written == expected
