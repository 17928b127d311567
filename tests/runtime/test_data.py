"""Training data of every kind, and what is wrong with them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from runtime.data import batch_of, open_data, whole_batch
from runtime.errors import DataError
from tests.runtime.jobs import SEQ_LEN, small_job, small_model

JOB = small_job(small_model(vocab=256), shard=2, micro_batches=3)
TEXT = "In the beginning was the word, and the word was read as bytes. " * 3


def test_ranks_share_out_the_sequences_of_a_step(tmp_path: Path) -> None:
    """The shares of the data-parallel ranks, one after the other, are the whole batch; the next step goes on."""
    (tmp_path / "text").write_text(TEXT)
    data = open_data(str(tmp_path / "text"), JOB, seed=0)
    for step in range(2):
        shares = [batch_of(data, JOB, rank, step) for rank in range(2)]
        whole = whole_batch(data, JOB, step)
        assert torch.equal(torch.cat([one.tokens for one in shares]), whole.tokens)
        assert torch.equal(torch.cat([one.targets for one in shares]), whole.targets)
        assert torch.equal(whole.tokens[:, 1:], whole.targets[:, :-1])
    first = bytes(whole_batch(data, JOB, 0).tokens[:2].flatten().tolist())
    assert first == TEXT.encode()[: 2 * SEQ_LEN]


@pytest.mark.parametrize("suffix", ["bin", "npy"])
def test_token_files_are_read_as_they_are(suffix: str, tmp_path: Path) -> None:
    """Raw 2-byte tokens, and numpy's own files."""
    tokens = np.arange(100, dtype=np.uint16)
    path = tmp_path / f"tokens.{suffix}"
    if suffix == "bin":
        tokens.tofile(path)
    else:
        np.save(path, tokens)
    assert open_data(str(path), JOB, seed=0).sequence(1).tolist() == list(range(SEQ_LEN, 2 * SEQ_LEN + 1))


def test_a_file_begins_again_behind_its_last_whole_sequence(tmp_path: Path) -> None:
    """Of 40 bytes 2 sequences of 16 tokens have a token behind them."""
    (tmp_path / "text").write_bytes(bytes(range(40)))
    data = open_data(str(tmp_path / "text"), JOB, seed=0)
    assert data.sequence(2).tolist() == data.sequence(0).tolist()


def test_drawn_tokens_depend_on_seed_and_number_alone() -> None:
    """Two ranks that ask for one sequence get the same."""
    first, again, other = (open_data("synthetic", JOB, seed) for seed in (1, 1, 2))
    assert torch.equal(first.sequence(5), again.sequence(5))
    assert not torch.equal(first.sequence(5), other.sequence(5))
    assert not torch.equal(first.sequence(5), first.sequence(6))


def test_faults_of_files_are_named(tmp_path: Path) -> None:
    """Missing, too short, cut off, not numbers, beyond the vocabulary."""
    folder = tmp_path
    (folder / "short").write_bytes(b"x" * SEQ_LEN)
    (folder / "torn.bin").write_bytes(b"x" * 101)
    whole = folder / "whole.npy"
    np.save(whole, np.arange(100, dtype=np.uint16))
    (folder / "torn.npy").write_bytes(whole.read_bytes()[:-50])
    np.save(folder / "real.npy", np.zeros(100))
    np.save(folder / "large.npy", np.full(100, 256, dtype=np.uint16))
    for name, message in (
        ("none", "cannot read"),
        ("short", r"must hold at least workload.seq_len \+ 1 = 17 tokens, got 16"),
        ("torn.bin", "is cut off: its 101 bytes are no whole number of tokens of 2 bytes"),
        ("torn.npy", "cannot read"),
        ("real.npy", "must hold one row of whole numbers"),
    ):
        with pytest.raises(DataError, match=message):
            open_data(str(folder / name), JOB, seed=0)
    with pytest.raises(DataError, match=r"token 0 must be in 0\.\.255 \(model\.vocab\), got 256"):
        open_data(str(folder / "large.npy"), JOB, seed=0).sequence(0)
    with pytest.raises(DataError, match="model.vocab must be >= 256"):
        open_data(str(folder / "short"), small_job(small_model()), seed=0)
