"""Scatter plots of predictions against measurements, as SVG files that need no library to draw."""

from collections.abc import Sequence
from math import ceil, floor, log10
from pathlib import Path

from planner.evaluate.statistics import Comparison

__all__ = ["write_plots"]

WIDTH, HEIGHT, MARGIN, LEGEND = 640, 560, 64, 130
# Of Okabe and Ito, told apart with every kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKS = ("circle", "square")
GIB = 2.0**30

Point = tuple[float, float, str]  # measured, predicted, group


def write_plots(core: Sequence[Comparison], compared: Sequence[Comparison], folder: Path) -> None:
    """None; step_time.svg and peak_memory.svg are written into the folder."""
    times = [(one.measured.step_time_s, one.predicted_s, one.source) for one in core if one.measured.step_time_s]
    memory = [
        (one.measured.peak_bytes / GIB, (1 + one.memory_error) * one.measured.peak_bytes / GIB, one.source)
        for one in compared
        if one.measured.peak_bytes and one.memory_error is not None
    ]
    folder.mkdir(parents=True, exist_ok=True)
    for name, title, points, band in (
        ("step_time", "step time, s", times, 0.2),
        ("peak_memory", "peak memory, GiB", memory, 0.1),
    ):
        (folder / f"{name}.svg").write_text(scatter(title, points, band), encoding="utf-8")


def scatter(title: str, points: Sequence[Point], band: float) -> str:
    """An SVG with both axes logarithmic, the diagonal, a band round it, and a colour and mark for each group."""
    values = [value for point in points for value in point[:2]]
    low, high = floor(10 * log10(min(values))) / 10, ceil(10 * log10(max(values))) / 10
    side = HEIGHT - 2 * MARGIN

    def x(value: float) -> float:
        return MARGIN + side * (log10(value) - low) / (high - low)

    def y(value: float) -> float:
        return HEIGHT - MARGIN - side * (log10(value) - low) / (high - low)

    first, last = 10**low, 10**high
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<clipPath id="inside"><rect x="{MARGIN}" y="{MARGIN}" width="{side}" height="{side}"/></clipPath>',
        '<g clip-path="url(#inside)">',
        *(
            f'<line x1="{x(first):.1f}" y1="{y(first * factor):.1f}" x2="{x(last):.1f}" y2="{y(last * factor):.1f}" '
            f'stroke="{"#444" if factor == 1 else "#bbb"}"/>'
            for factor in (1.0, 1 + band, 1 / (1 + band))
        ),
    ]
    groups = sorted({group for _, _, group in points})
    lines += [_mark(x(a), y(b), groups.index(group)) for a, b, group in points]
    lines += ["</g>", *_axes(title, x, y, low, high), *_legend(groups, band), "</svg>"]
    return "\n".join(lines) + "\n"


def _mark(x: float, y: float, index: int) -> str:
    colour, shape = COLOURS[index % len(COLOURS)], MARKS[index // len(COLOURS) % len(MARKS)]
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}" fill-opacity="0.6"/>'
    return f'<rect x="{x - 2.3:.1f}" y="{y - 2.3:.1f}" width="4.6" height="4.6" fill="{colour}" fill-opacity="0.6"/>'


def _axes(title: str, x, y, low: float, high: float) -> list[str]:  # type: ignore[no-untyped-def]
    first, last = 10**low, 10**high
    lines = [
        f'<rect x="{MARGIN}" y="{MARGIN}" width="{HEIGHT - 2 * MARGIN}" height="{HEIGHT - 2 * MARGIN}" fill="none" '
        'stroke="#444"/>',
        f'<text x="{HEIGHT / 2}" y="{HEIGHT - 16}" text-anchor="middle">measured {title}</text>',
        f'<text transform="translate(18 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">predicted {title}</text>',
    ]
    for exponent in range(ceil(low), floor(high) + 1):
        for digit in (1, 2, 5):
            value = digit * 10.0**exponent
            if first <= value <= last:
                lines.append(
                    f'<text x="{x(value):.1f}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">{value:g}</text>'
                )
                lines.append(f'<text x="{MARGIN - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    return lines


def _legend(groups: Sequence[str], band: float) -> list[str]:
    left = WIDTH - LEGEND + 40
    lines = [f'<text x="{left}" y="{MARGIN + 4}">lines: ±{band:.0%}</text>']
    for index, group in enumerate(groups):
        top = MARGIN + 22 + 16 * index
        lines += [_mark(left + 4, top, index), f'<text x="{left + 14}" y="{top + 4}">{group}</text>']
    return lines
