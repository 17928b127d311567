import pytest

from cost_models.schedules.split_order import warm_up_then_split


def order(m: int, warm_up: int, delay: int) -> str:
    """The order as a string, like "F0 I0 W0"."""
    return " ".join(f"{'FBIW'[kind]}{micro_batch}" for kind, _, micro_batch, _ in warm_up_then_split(m, warm_up, delay))


@pytest.mark.parametrize(
    ("m", "warm_up", "delay", "expected"),
    [
        (2, 0, 0, "F0 I0 W0 F1 I1 W1"),
        (3, 1, 1, "F0 F1 I0 F2 I1 W0 I2 W1 W2"),
        (2, 5, 0, "F0 F1 I0 W0 I1 W1"),
        (2, 0, 5, "F0 I0 F1 I1 W0 W1"),
        (1, 3, 3, "F0 I0 W0"),
    ],
)
def test_forwards_warm_up_and_weight_gradients_wait(m: int, warm_up: int, delay: int, expected: str) -> None:
    """Never more than `delay` weight gradients are due before the next forward; all that are left come last."""
    assert order(m, warm_up, delay) == expected
