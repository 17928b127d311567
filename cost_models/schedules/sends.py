"""Sends that a rank waits for: it does nothing until what it sends has arrived, instead of sending beside its work."""

from dataclasses import replace

import numpy as np

from cost_models.schedules.table import Placement
from cost_models.schedules.times import StageTimes


def waiting_for_sends(times: StageTimes, placement: Placement) -> StageTimes:
    """The times of ranks that wait for what they send, as Megatron's do with --no-overlap-p2p-communication.

    A hop then is part of the forward that sends over its link to the next virtual stage, and of the input gradient that
    sends back; there is nothing left that delays the receiver alone.
    """
    none = np.zeros((*times.batch, 1))  # between virtual stages on one rank
    hop_s = np.concatenate([times.hop_s, none], axis=-1)[..., placement.link]
    forward_s, input_grad_s = times.forward_s.copy(), times.input_grad_s.copy()
    of_copies = placement.stage_of().reshape(-1).argsort().reshape(placement.routes, -1)
    sender, receiver = of_copies[:, :-1].reshape(-1), of_copies[:, 1:].reshape(-1)
    flat = (*times.batch, -1)
    forward_s.reshape(flat)[..., sender] += hop_s
    input_grad_s.reshape(flat)[..., receiver] += hop_s
    return replace(times, forward_s=forward_s, input_grad_s=input_grad_s, hop_s=np.zeros_like(times.hop_s))
