"""What a run is trained on: bytes of a text, a memory-mapped file of tokens, or drawn tokens."""

from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from planner.document.job import Job
from runtime.chance import generator_of
from runtime.errors import DataError
from runtime.training import Batch

__all__ = ["SYNTHETIC", "Drawn", "Sequences", "batch_of", "open_data", "whole_batch"]

SYNTHETIC = "synthetic"
BYTE_VALUES = 256
TOKEN_TYPES = (np.dtype(np.uint16), np.dtype(np.uint32))


class Sequences(Protocol):
    """Training sequences by number, without an end: a file begins again behind its last whole sequence."""

    def sequence(self, number: int) -> Tensor:
        """[seq_len + 1] tokens: a sequence and the token that follows it."""
        ...


class Drawn:
    """Sequences drawn from a seed."""

    def __init__(self, vocab: int, seq_len: int, seed: int) -> None:
        self.vocab, self.seq_len, self.seed = vocab, seq_len, seed

    def sequence(self, number: int) -> Tensor:
        """[seq_len + 1] tokens."""
        generator = generator_of(self.seed, "sequence", number)
        return torch.randint(self.vocab, (self.seq_len + 1,), generator=generator)


class Stored:
    """Sequences of a file, one after the other."""

    def __init__(self, path: Path, tokens: npt.NDArray[np.integer], vocab: int, seq_len: int) -> None:
        self.path, self.tokens, self.vocab, self.seq_len = path, tokens, vocab, seq_len
        self.whole = (len(tokens) - 1) // seq_len
        if self.whole < 1:
            message = f"{path} must hold at least workload.seq_len + 1 = {seq_len + 1} tokens, got {len(tokens)}"
            raise DataError(message)

    def sequence(self, number: int) -> Tensor:
        """[seq_len + 1] tokens. Raises DataError for a token that the model's vocabulary lacks."""
        start = number % self.whole * self.seq_len
        tokens = self.tokens[start : start + self.seq_len + 1].astype(np.int64)
        if tokens.min() < 0 or tokens.max() >= self.vocab:
            wrong = int(np.flatnonzero((tokens < 0) | (tokens >= self.vocab))[0])
            where = f"{self.path}: token {start + wrong}"
            message = f"{where} must be in 0..{self.vocab - 1} (model.vocab), got {tokens[wrong]}"
            raise DataError(message)
        return torch.from_numpy(tokens)


def open_data(name: str, job: Job, seed: int) -> Sequences:
    """The data of this name: `synthetic`, a token file (.npy, or .bin of raw tokens), any other file as bytes.

    A .bin holds 2 bytes a token, 4 where the vocabulary has more than 65,536. Raises DataError.
    """
    vocab, seq_len = job.model.vocab, job.workload.seq_len
    if name == SYNTHETIC:
        return Drawn(vocab, seq_len, seed)
    path = Path(name)
    try:
        if path.suffix == ".npy":
            tokens = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            tokens = np.memmap(path, dtype=_raw_type(path, vocab), mode="r")
    except (OSError, ValueError, EOFError) as error:
        message = f"cannot read {path}: {error}"
        raise DataError(message) from error
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        message = f"{path} must hold one row of whole numbers, got {tokens.ndim} dimensions of {tokens.dtype}"
        raise DataError(message)
    return Stored(path, tokens, vocab, seq_len)


def batch_of(data: Sequences, job: Job, data_rank: int, step: int) -> Batch:
    """What a data-parallel rank sees in a step, counted from 0. Raises DataError."""
    each = job.layout.micro_batch_size * job.layout.num_microbatches
    return _batch(data, step * job.layout.global_batch + data_rank * each, each)


def whole_batch(data: Sequences, job: Job, step: int) -> Batch:
    """What all of them see together. Raises DataError."""
    return _batch(data, step * job.layout.global_batch, job.layout.global_batch)


def _batch(data: Sequences, first: int, count: int) -> Batch:
    tokens = torch.stack([data.sequence(number) for number in range(first, first + count)])
    return Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


def _raw_type(path: Path, vocab: int) -> np.dtype[np.integer]:
    """The type of a raw file's tokens. Raises DataError for a text that the model cannot read and for a torn file."""
    if path.suffix != ".bin":
        if vocab < BYTE_VALUES:
            message = f"model.vocab must be >= {BYTE_VALUES} to read the bytes of {path} as tokens, got {vocab}"
            raise DataError(message)
        return np.dtype(np.uint8)
    kind = TOKEN_TYPES[vocab > 2**16]
    size = path.stat().st_size
    if size % kind.itemsize:
        message = f"{path} is cut off: its {size} bytes are no whole number of tokens of {kind.itemsize} bytes"
        raise DataError(message)
    return kind
