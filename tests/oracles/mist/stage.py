"""Seconds and MiB of the options of a stage, as Mist's analyser has them.

Arrays broadcast: options run along the last axis, layers and recomputed layers along the others. Seconds of a stage
are `stable_s`, of a micro-batch in the middle, and `delta_s`, what the first forward and the last backward take more.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tests.oracles.mist.gpt import MIB, Gpt, MicroBatch
from tests.oracles.mist.hardware import Array, Card

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Options:
    """What one stage may decide besides its layers, one option an entry of each array."""

    zero: IntArray
    """ZeRO stage, 1 to 3."""
    weights: Array
    """Share of the weights on the host; likewise the others."""
    gradients: Array
    optimizer: Array
    activations: Array

    def take(self, kept: IntArray) -> "Options":
        """Some of the options."""
        return Options(*(getattr(self, field)[kept] for field in self.__dataclass_fields__))


@dataclass(frozen=True)
class Position:
    """Where a stage stands: what it holds beside layers, and micro-batches it has in flight before the current one."""

    first: bool
    last: bool
    waiting: int


@dataclass(frozen=True)
class Phase:
    """Streams of one layer of a micro-batch on its way forward or back: collectives and copies beside the compute.

    What a layer takes from the host or other ranks is fetched during the layer before it, what it gives is sent during
    the layer after it: the first and the last layer on the way have nothing to send or to fetch.
    """

    gather_s: Array
    reduce_s: Array
    fetch_s: Array
    send_s: Array


@dataclass(frozen=True)
class LayerSeconds:
    """Seconds of a layer, forward and back, by its place in the stage."""

    middle_s: Array
    first_s: Array
    last_s: Array


@dataclass(frozen=True)
class StageModel:
    """Costs of the stages of one pipeline: all have the same devices, micro-batch and options."""

    model: Gpt
    card: Card
    options: Options
    nodes: int
    gpus: int
    batch: int
    micro_batches: int

    @property
    def dp(self) -> int:
        """Data-parallel ranks, the devices of the stage."""
        return self.nodes * self.gpus

    @cached_property
    def micro_batch(self) -> MicroBatch:
        """Seconds of its parts."""
        return MicroBatch.of(self.model, self.card, self.batch, self.micro_batches)

    @cached_property
    def _layer_mib(self) -> float:
        return 2 * self.model.layer_parameters / MIB

    @cached_property
    def _vocab_mib(self) -> float:
        return 2 * self.model.vocab_parameters / MIB

    def _collective_s(self, operation: str, mib: float) -> float:
        return self.card.collective_s(operation, mib, self.nodes, self.gpus)

    # --- seconds ---

    def seconds(self, layers: IntArray, recomputed: IntArray, position: Position) -> tuple[Array, Array]:
        """`stable_s` and `delta_s`, of the shape that the layers and the options broadcast to."""
        stable_s = self._pass_s(layers, recomputed, edge=False)
        delta_s = self._pass_s(layers, recomputed, edge=True) - stable_s
        if self.micro_batches == 1:
            stable_s, delta_s = stable_s + delta_s, 0 * delta_s
        gather_s = self._collective_s("all_gather", self._vocab_mib)
        if position.first:
            stable_s = stable_s + sum(self.micro_batch.embedding_s)
            delta_s = delta_s + gather_s + self._collective_s("reduce_scatter", self._vocab_mib)
        if position.last:
            hidden_s = self._before_backward_s(recomputed=True)
            stable_s = stable_s + self.micro_batch.head_s[0] + np.maximum(self.micro_batch.head_s[1] - hidden_s, 0)
            delta_s = delta_s + self._head_exchange_s(recomputed > 0)
        return stable_s, delta_s

    def _pass_s(self, layers: IntArray, recomputed: IntArray, edge: bool) -> Array:
        """Forward and backward seconds of a micro-batch: the first one forward and the last one back at the `edge`.

        The last layers are the recomputed ones, so that the last one is if any is, and the first one if all are.
        """
        middle = np.maximum(layers - 2, 0)
        middle_recomputed = np.clip(recomputed - 1, 0, middle)
        again, kept = self._layers_s[True, edge], self._layers_s[False, edge]
        seconds: Array = (
            middle_recomputed * again.middle_s
            + (middle - middle_recomputed) * kept.middle_s
            + np.where(recomputed == layers, again.first_s, kept.first_s)
            + np.where(recomputed > 0, again.last_s, kept.last_s)
        )
        return seconds

    @cached_property
    def _layers_s(self) -> dict[tuple[bool, bool], LayerSeconds]:
        """Seconds of a layer by (recomputed, at the edge)."""
        return {
            (recomputed, edge): LayerSeconds(
                self._layer_s(recomputed, edge),
                self._first_layer_s(recomputed, edge),
                self._last_layer_s(recomputed, edge),
            )
            for recomputed in (False, True)
            for edge in (False, True)
        }

    def _layer_s(self, recomputed: bool, edge: bool) -> Array:
        ahead, back = self._forward(recomputed, edge), self._backward(recomputed, edge)
        return self._beside(self._compute_s(False), ahead) + self._beside(self._compute_s(True, recomputed), back)

    def _first_layer_s(self, recomputed: bool, edge: bool) -> Array:
        """The layer that is first forward and last back, with what nothing hides in front of it and behind it."""
        ahead, back = _fetching(self._forward(recomputed, edge)), _sending(self._backward(recomputed, edge))
        return (
            self._beside(0.0, ahead)
            + self._beside(self._compute_s(False), ahead)
            + self._beside(self._compute_s(True, recomputed), back)
            + self._beside(0.0, back)
        )

    def _last_layer_s(self, recomputed: bool, edge: bool) -> Array:
        """The layer that is last forward and first back, likewise."""
        ahead, back = _sending(self._forward(recomputed, edge)), _fetching(self._backward(recomputed, edge))
        return (
            self._beside(self._compute_s(False), ahead)
            + self._beside(0.0, ahead)
            + self._beside(0.0, back)
            + self._beside(self._compute_s(True, recomputed), back)
        )

    def _beside(self, compute_s: float, phase: Phase) -> Array:
        return self.card.beside_s(compute_s, phase.gather_s + phase.reduce_s, phase.fetch_s, phase.send_s)

    def _compute_s(self, backward: bool, recomputed: bool = False) -> float:
        forward_s, backward_s = self.micro_batch.layer_s
        return backward_s + forward_s * recomputed if backward else forward_s

    def _forward(self, recomputed: bool, edge: bool) -> Phase:
        """A layer forward; with the first micro-batch goes its optimizer step, in front of it."""
        gather_s = self._collective_s("all_gather", self._layer_mib)
        saved_s = self._copy_s("to_host", self._kept_mib(recomputed) * self.options.activations)
        none = 0 * saved_s
        if edge:
            fetch_s = self._copy_s("to_device", self._optimizer_mib) + self._copy_s("to_device", self._gradients_mib)
            send_s = self._copy_s("to_host", self._optimizer_mib) + self._copy_s("to_host", self._weights_mib)
            return Phase(none + gather_s, none, fetch_s, send_s + saved_s)
        return Phase(
            none + gather_s * (self.options.zero == 3), none, self._copy_s("to_device", self._weights_mib), saved_s
        )

    def _backward(self, recomputed: bool, edge: bool) -> Phase:
        """A layer back; with the last micro-batch its gradients are reduced under every ZeRO stage."""
        zero = self.options.zero
        gather_s = self._collective_s("all_gather", self._layer_mib) * (zero == 3)
        reduce_s = self._collective_s("reduce_scatter", self._layer_mib) * ((zero >= 2) | edge)
        states_s = self._copy_s("to_device", self._weights_mib) + self._copy_s("to_device", self._gradients_mib)
        saved_s = self._copy_s("to_device", self._kept_mib(recomputed) * self.options.activations)
        none = 0 * saved_s
        return Phase(none + gather_s, none + reduce_s, states_s + saved_s, self._copy_s("to_host", self._gradients_mib))

    def _copy_s(self, direction: str, mib: Array) -> Array:
        return self.card.copy_s(direction, mib)

    def _before_backward_s(self, recomputed: bool) -> Array:
        """What the backward pass of a middle micro-batch fetches before its first layer."""
        return self._beside(0.0, _fetching(self._backward(recomputed, edge=False)))

    def _head_exchange_s(self, recomputed: NDArray[np.bool_]) -> Array:
        """Gather and reduction of the head's states beyond what the layer next to it hides."""

        def exposed(kind: bool) -> Array:
            back = self._backward(kind, edge=False)
            ahead_s = np.maximum(self._compute_s(False) - self._forward(kind, edge=False).send_s, 0)
            back_s = np.maximum(self._compute_s(True, kind) - back.gather_s - back.fetch_s, 0)
            gather_s = self._collective_s("all_gather", self._vocab_mib) - ahead_s
            reduce_s = self._collective_s("reduce_scatter", self._vocab_mib) - back_s
            return np.maximum(gather_s, 0) + np.maximum(reduce_s, 0)

        return np.where(recomputed, exposed(True), exposed(False))

    # --- MiB on the host, of one layer and rank ---

    @property
    def _weights_mib(self) -> Array:
        return self._layer_mib / np.where(self.options.zero == 3, self.dp, 1) * self.options.weights

    @property
    def _gradients_mib(self) -> Array:
        return self._layer_mib / np.where(self.options.zero >= 2, self.dp, 1) * self.options.gradients

    @property
    def _optimizer_mib(self) -> Array:
        return 6 * self._layer_mib / self.dp * self.options.optimizer

    def _kept_mib(self, recomputed: bool) -> float:
        """What a layer keeps of a micro-batch: its input alone when the rest is computed again."""
        return self.model.unit_mib(self.batch) if recomputed else self.model.saved_mib(self.batch)

    # --- MiB on the device ---

    def peaks_mib(self, layers: IntArray, recomputed: IntArray, position: Position) -> tuple[Array, Array]:
        """Peaks of the forward and of the backward pass, without the fragmentation margin."""
        share, unit = 1 - self.options.activations, self.model.unit_mib(self.batch)
        kept, raw = self._kept_mib(True) * share, self._kept_mib(False)
        stage_kept = recomputed * kept + (layers - recomputed) * raw * share
        # The layer at the peak has not saved anything yet; what an earlier one still sends, or has fetched, is here.
        before_peak = stage_kept - np.where(recomputed == layers, kept, raw * share)
        moving = np.where(recomputed >= layers - 1, self._kept_mib(True), raw) * self.options.activations
        scores = self.model.scores_mib(self.batch)
        around = position.waiting * (stage_kept + 2 * unit) + before_peak + moving + scores
        forward_states, backward_states = self._states_mib(layers)
        forward = forward_states + around + 18 * unit + 2 * scores
        backward = backward_states + around + 24 * unit + 2 * scores
        vocab_states = self._vocab_mib * (2 + 6 / self.dp)
        if position.last:
            logits, swapped = self.model.logits_mib(self.batch), raw * self.options.activations * (recomputed == 0)
            head = vocab_states + stage_kept + scores
            forward = np.maximum(forward_states + head + unit + 2 * logits, forward + vocab_states)
            in_head = backward_states + head + 2 * unit + logits + swapped
            backward = np.maximum(in_head, backward - unit + vocab_states)
        if position.first:
            tokens = 8 * self.batch * self.model.seq_len / MIB
            embedding = vocab_states + (position.waiting + 1) * tokens
            forward, backward = forward + embedding, backward + embedding
        return forward, backward

    def _states_mib(self, layers: IntArray) -> tuple[Array, Array]:
        """Weights, gradients, optimizer states and buffers, forward and backward.

        Forward one layer's optimizer states are whole, in whole MiB: it takes its step before its first forward pass.
        """
        options = self.options
        weights_whole = (options.zero == 3) & (self.dp > 1) | (options.weights > 0)
        gradients_whole = (options.zero >= 2) & (self.dp > 1) | (options.gradients > 0)
        largest = max(self._layer_mib, self._vocab_mib)
        buffers = 2 * largest * (weights_whole.astype(float) + gradients_whole)
        kept = self._layer_mib / np.where(options.zero == 3, self.dp, 1) - self._weights_mib
        kept = kept + self._layer_mib / np.where(options.zero >= 2, self.dp, 1) - self._gradients_mib
        optimizer = 6 * self._layer_mib / self.dp
        optimizer_kept = optimizer - self._optimizer_mib
        forward = buffers + np.floor(optimizer) + layers * kept + (layers - 1) * optimizer_kept
        return forward, buffers + layers * (kept + optimizer_kept)

    def fits(self, layers: IntArray, recomputed: IntArray, position: Position) -> NDArray[np.bool_]:
        """Whether the greater peak, with its margin for fragmentation, is within the card's memory."""
        options = self.options
        margin = 1 + 0.005 * max(0.0, self.model.hidden / 2048 - 1) + 0.045 * max(0.0, self.model.seq_len / 2048 - 1)
        margin += 0.01 * (self.batch >= 4) + 0.025 * (not (position.first and position.last))
        margin += 0.01 * (not (position.first or position.last))
        margins = margin + 0.025 * (options.weights > 0) + 0.025 * (options.gradients > 0)
        margins = margins + 0.03 * (options.optimizer > 0) + 0.04 * (options.activations > 0)
        margins = margins + 0.025 * (options.zero == 3) + 0.025 * (options.zero >= 2)
        peak = np.maximum(*self.peaks_mib(layers, recomputed, position))
        fitting = (peak * margins <= self.card.memory_mib) & (recomputed <= layers)
        # The tuner does not trust its own peak for the others.
        trusted = ~(position.last & (recomputed == layers - 1))
        kept: NDArray[np.bool_] = np.logical_and(fitting, trusted)
        return kept


def _fetching(phase: Phase) -> Phase:
    """Only what the next layer needs."""
    return replace(phase, reduce_s=0 * phase.reduce_s, send_s=0 * phase.send_s)


def _sending(phase: Phase) -> Phase:
    """Only what the layer before gives."""
    return replace(phase, gather_s=0 * phase.gather_s, fetch_s=0 * phase.fetch_s)
