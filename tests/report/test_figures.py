import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from assay.errors import OutputError, UsageError
from assay.judge.results import PairRow
from assay.report.figures.achievements import RateRow, draw_rate_bars
from assay.report.figures.cost import CostPoint, draw_cost_quality
from assay.report.figures.curves import (
    PrecisionPoint,
    VariancePanel,
    draw_learning_curves,
    draw_variance_panels,
    mean_curve,
)
from assay.report.figures.distributions import (
    draw_bootstrap_distribution,
    draw_box_plot,
    draw_histogram,
)
from assay.report.figures.drawing import Drawing, save_png
from assay.report.figures.instances import (
    CompletionRow,
    draw_completion_times,
    draw_success_bars,
    draw_success_heat_map,
)
from assay.report.figures.intervals import (
    ForestRow,
    VersionRow,
    draw_forest,
    draw_versions_over_time,
)
from assay.report.figures.pairs import draw_pair_differences, draw_pair_lines
from assay.report.figures.radial import draw_radial, scale_to_best
from assay.report.figures.style import format_compact, format_number, group_style, shorten_names
from assay.stats.intervals import Interval, t_interval
from tests.report.gallery import DOLLARS, drawings

NAN = math.nan
SVG = "{http://www.w3.org/2000/svg}"


KINDS = drawings()
QUICK = ("cost", "success bars")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(QUICK, id="some"),
        pytest.param(tuple(KINDS), id="all", marks=pytest.mark.extras),
    ],
)
def gallery(request: pytest.FixtureRequest) -> dict[str, Drawing]:
    return {kind: KINDS[kind]() for kind in request.param}


def texts(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_every_drawing_is_one_labelled_scalable_svg_without_requests(
    gallery: dict[str, Drawing],
) -> None:
    for kind, drawing in gallery.items():
        root = ElementTree.fromstring(drawing.svg)
        assert root.tag == f"{SVG}svg", kind
        assert root.get("role") == "img", kind
        assert root.get("aria-label") == drawing.alt, kind
        assert not {"width", "height"} & set(root.attrib), kind
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        assert width == 432, kind
        assert height > 100, kind
        tags = {element.tag.removeprefix(SVG) for element in root.iter()}
        allowed = {"clipPath", "defs", "g", "path", "pattern", "rect", "svg", "text", "tspan"}
        assert tags <= allowed | {"use"}, kind
        assert not re.search(
            r"https?:", drawing.svg.replace('"http://www.w3.org/2000/svg"', "")
        )


def test_the_ids_of_all_drawings_differ_and_every_link_has_its_target(
    gallery: dict[str, Drawing],
) -> None:
    seen: set[str] = set()
    for kind, drawing in gallery.items():
        root = ElementTree.fromstring(drawing.svg)
        own = [name for element in root.iter() if (name := element.get("id"))]
        values = [v for element in root.iter() for k, v in element.items() if k != "aria-label"]
        links = {link for value in values for link in re.findall(r"url\(#([^)]+)\)", value)}
        links |= {value[1:] for element in root.iter() if (value := element.get("href"))}
        assert set(own) == links, kind
        assert len(own) == len(set(own)), kind
        assert not seen & set(own), kind
        seen |= set(own)


def test_text_is_large_enough_to_read(gallery: dict[str, Drawing]) -> None:
    for kind, drawing in gallery.items():
        sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", drawing.svg)]
        assert sizes, kind
        assert min(sizes) >= 9, kind


def test_hostile_names_are_escaped(gallery: dict[str, Drawing]) -> None:
    shown = texts(gallery["cost"].svg)
    assert f"{DOLLARS}  (n = 12)" in shown
    assert "<script" not in gallery["cost"].svg
    for kind, drawing in gallery.items():
        words = "".join([*texts(drawing.svg), drawing.alt, drawing.note, drawing.title])
        assert "\x1b" not in words, kind
        assert "\u202e" not in words, kind
    assert any("\\x1b" in text for text in texts(gallery["success bars"].svg))


def test_every_drawing_has_alt_text_and_a_data_table(
    gallery: dict[str, Drawing],
) -> None:
    for kind, drawing in gallery.items():
        assert drawing.title, kind
        assert drawing.note.endswith("."), kind
        assert drawing.alt.startswith(drawing.title), kind
        assert re.search(r"\d", drawing.alt), kind
        assert len(drawing.alt) < 1500, kind
        if kind != "bootstrap":
            assert drawing.table is not None, kind
            assert all(len(row) == len(drawing.table.heads) for row in drawing.table.rows), kind


@pytest.mark.extras
def test_the_same_data_gives_the_same_bytes(gallery: dict[str, Drawing]) -> None:
    for kind, drawing in gallery.items():
        assert drawings()[kind]().svg == drawing.svg, kind


def test_writing_a_drawing_does_not_change_it(gallery: dict[str, Drawing]) -> None:
    drawing = KINDS["success bars"]()
    first = drawing.png(20)
    assert drawing.svg == gallery["success bars"].svg
    assert drawing.png(20) == first


def test_user_matplotlib_settings_are_ignored_and_preserved(
    gallery: dict[str, Drawing],
) -> None:
    mine: dict[Any, Any] = {"text.usetex": True, "font.size": 30, "svg.fonttype": "path"}
    with matplotlib.rc_context(mine):
        assert KINDS["cost"]().svg == gallery["cost"].svg
        assert {name: matplotlib.rcParams[name] for name in mine} == mine


def test_png_includes_title_and_note(gallery: dict[str, Drawing], tmp_path: Path) -> None:
    from PIL import Image

    drawing = gallery["cost"]
    save_png(drawing, tmp_path / "deep" / "cost.png", dpi=50)
    with Image.open(tmp_path / "deep" / "cost.png") as image:
        width, height = image.size
    assert width == 300
    assert height > 50 * float(drawing.figure.get_size_inches()[1])
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        save_png(drawing, tmp_path / "file" / "cost.png", dpi=20)


def test_twenty_groups_are_distinguishable_without_colour() -> None:
    looks = [group_style(index) for index in range(20)]
    assert len(set(looks)) == 20
    assert all(a[1:] != b[1:] for a, b in pairwise(looks))
    assert len({style[1:3] for style in looks[:8]}) == 8


def test_long_names_are_cut_and_stay_different() -> None:
    names = shorten_names(["a" * 50, "a" * 50, "b", "two\nlines\t$y$"], 10)
    assert names[0] != names[1]
    assert names[0] == "aaaaaa…aaa"
    assert names[2:] == ["b", r"two li…$y$"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.23456, "1.23"),
        (12345.6, "12,346"),
        (NAN, "-"),
        (1e-7, "1e-07"),
    ],
)
def test_numbers_are_formatted_briefly(value: float, text: str) -> None:
    assert format_number(value) == text


def test_step_counts_are_formatted_compactly() -> None:
    assert [format_compact(x) for x in (0, 950, 20_000, 1.5e6, 2e9)] == [
        "0",
        "950",
        "20k",
        "1.5M",
        "2B",
    ]


def test_a_histogram_of_counts_has_a_bar_per_number() -> None:
    drawing = draw_histogram({"a": [1, 1, 4], "b": [2, NAN, math.inf]}, "achievements")
    bars = [patch.get_height() for patch in drawing.figure.axes[0].patches]  # type: ignore[attr-defined]
    assert bars == [2, 0, 0, 1]
    assert "a: n = 3, mean 2, median 1, from 1 to 4" in drawing.alt
    assert "2 missing or infinite values are omitted" in drawing.note
    assert drawing.table is not None
    assert drawing.table.rows[0] == ("a", "3", "2", "1", "1.732", "1", "4")


@pytest.mark.parametrize(
    "values",
    [[3.0], [0.1] * 5, [0.0, 1e-300], [1e15, 1e15 + 1], [-1e300, 1e300]],
    ids=["one", "all equal", "tiny", "close together", "far apart"],
)
def test_constant_values_can_be_drawn(values: list[float]) -> None:
    drawing = draw_histogram({"a": values, "nobody": []}, "reward")
    assert sum(bar.get_height() for bar in drawing.figure.axes[0].patches) == len(values)  # type: ignore[attr-defined]
    draw_box_plot({"a": values, "nobody": []}, "reward").figure.draw_without_rendering()


def test_a_box_needs_five_values() -> None:
    drawing = draw_box_plot({"few": [1, 2, 3, 4], "enough": [1, 2, 3, 4, 5]}, "reward")
    assert len(drawing.figure.axes[0].patches) == 1


def test_only_the_first_groups_are_drawn_and_all_are_in_the_table() -> None:
    drawing = draw_box_plot({f"model {i}": [float(i)] for i in range(30)}, "reward")
    assert len(drawing.figure.axes[0].get_yticks()) == 20
    assert "first 20 of 30" in drawing.note
    assert drawing.table is not None
    assert len(drawing.table.rows) == 30


def test_box_plot_of_many_values_draws_a_sample_with_the_extremes() -> None:
    drawing = draw_box_plot({"a": np.arange(5000.0)}, "reward")
    line = max(drawing.figure.axes[0].lines, key=lambda line: len(np.asarray(line.get_xdata())))
    points = np.asarray(line.get_xdata())
    assert len(points) == 300
    assert (points.min(), points.max()) == (0, 4999)
    assert "At most 300 points" in drawing.note


def test_a_forest_plot_draws_unknown_and_infinite_bounds() -> None:
    rows = [ForestRow("a", Interval(1, NAN, NAN)), ForestRow("b", Interval(2, 1, math.inf))]
    drawing = draw_forest(rows, "difference", zero_line=None)
    assert "a: 1 [no interval]; b: 2 [1, ∞]" in drawing.alt
    low, high = drawing.figure.axes[0].get_xlim()
    assert (low, high) == pytest.approx((0.92, 2.08))


def test_pairs_are_counted_by_direction() -> None:
    rows = [PairRow("1", 1, 2), PairRow("2", 1, 1), PairRow("3", 2, 1), PairRow("4", 1, NAN)]
    said = "in 3 pairs, B is higher than A in 1, equal in 1, lower in 1"
    assert said in draw_pair_lines(rows, "A", "B", "reward").alt
    drawing = draw_pair_differences(rows, "A", "B", "reward")
    assert said in drawing.alt
    assert "1 pairs with a missing value are omitted" in drawing.note


def test_drawn_sample_of_many_pairs_is_evenly_spread() -> None:
    rows = [PairRow(str(i), 0, float(i - 250)) for i in range(501)]
    drawing = draw_pair_differences(rows, "A", "B", "reward")
    drawn = [
        float(np.asarray(line.get_xdata())[0]) for line in drawing.figure.axes[0].lines[2:]
    ]
    assert len(drawn) == 200
    assert (min(drawn), max(drawn)) == (-250, 250)
    assert abs(float(np.mean(drawn))) < 2
    assert "200 of the others are drawn" in drawing.note


def test_pareto_front_omits_dominated_models() -> None:
    def front(higher_is_better: bool) -> list[tuple[float, float]]:
        points = [
            CostPoint(str(cost), Interval(cost, NAN, NAN), Interval(quality, NAN, NAN))
            for cost, quality in ((1, 5), (2, 4), (3, 9), (3, 8), (4, 1))
        ]
        drawing = draw_cost_quality(points, "reward", higher_is_better=higher_is_better)
        line = drawing.figure.axes[0].lines[0]
        return list(zip(line.get_xdata(), line.get_ydata(), strict=True))  # type: ignore[arg-type]

    assert front(True) == [(1, 5), (3, 9)]
    assert front(False) == [(1, 5), (2, 4), (4, 1)]


def test_mean_curve_averages_the_available_runs() -> None:
    long = ([0, 5, 10, 15, 20], [0.0, 0.5, 1.0, 1.5, 2.0])
    short = ([0, 10], [2.0, 3.0])
    curve = mean_curve([long, short])
    assert curve.steps.tolist() == [0, 5, 10, 15, 20]
    assert curve.mean.tolist() == [1, 1.5, 2, 1.5, 2]
    assert curve.runs.tolist() == [2, 2, 2, 1, 1]
    assert curve.at(1) == t_interval([0.5, 2.5])
    assert np.isnan(curve.low[3:]).all()


def test_end_of_a_run_is_included_between_grid_steps() -> None:
    runs = [([0, 1, 10], [0.0, 0.1, 1.0]), ([0, 7], [0.0, 7.0])]
    curve = mean_curve(runs, points=3)
    assert curve.steps.tolist() == [0, 5, 7, 10]
    assert curve.runs.tolist() == [2, 2, 2, 1]


def test_learning_curves_mark_runs_that_end_early() -> None:
    steps = np.arange(0, 1001, 10.0)
    runs = [(steps, steps), (steps[:50], steps[:50]), (steps[:-1], steps[:-1])]
    drawing = draw_learning_curves({"a": runs, "none": []}, "reward")
    assert "1 run ends before the longest" in drawing.note
    assert "a: 3 runs, mean at step 490 490 [490, 490]" in drawing.alt


def test_a_long_run_keeps_its_spikes() -> None:
    steps = np.arange(100_000.0)
    values = np.zeros(100_000)
    values[54_321] = 7
    drawing = draw_learning_curves({"a": [(steps, values)]}, "reward")
    drawn = np.asarray(drawing.figure.axes[0].lines[0].get_ydata())
    assert len(drawn) < 500
    assert drawn.max() == 7


def test_axes_are_scaled_to_the_best() -> None:
    raw: dict[str, list[float | None]] = {
        "a": [2.0, 10.0, -1.0, 3.0, None],
        "b": [4.0, 5.0, 1.0, 3.0, 2.0],
    }
    axes = ["reward", "cost", "slope", "same", "rare"]
    scaled = scale_to_best(axes, raw, lower_is_better={"cost"})
    assert scaled["a"][:4] == [0.5, 0.5, 0, 1]
    assert math.isnan(scaled["a"][4])
    assert scaled["b"] == [1, 1, 1, 1, 1]


def test_a_radial_plot_names_missing_values() -> None:
    drawing = draw_radial(["x", "y", "z"], {"a": [1, None, 0.5]}, raw={"a": [12, None, 3]})
    assert "a: x 12, y -, z 3" in drawing.alt
    assert "y\n-" in [tick.get_text() for tick in drawing.figure.axes[0].get_xticklabels()]


def test_variance_panels_show_their_results_in_the_legend() -> None:
    errors = [PrecisionPoint(n, 0.1 / math.sqrt(n)) for n in range(2, 10)]
    rule = [(2, 0.04), (3, math.inf)]
    near = VariancePanel(
        name="AUC", precision=errors, rule=rule, rule_n=2, needed=4, needed_low=3, needed_high=9
    )
    far = VariancePanel(name="slope", precision=errors, rule=rule, rule_n=None, needed=90_000)
    drawing = draw_variance_panels([near, far], threshold=0.05, runs=8)
    words = [
        {text.get_text() for text in legend.get_texts()}
        for ax in drawing.figure.axes
        if (legend := ax.get_legend()) is not None
    ]
    assert {"plain rule: N = 2", "N needed = 4 (3 to 9)", "threshold 5 %"} <= words[0]
    assert {"plain rule: never below", "N needed = 90000"} <= words[1]
    assert drawing.figure.axes[1].get_xlim()[1] < 20
    assert "AUC: relative standard error 3.54 % at 8 runs" in drawing.alt


def test_censored_times_are_marked() -> None:
    rows = [CompletionRow("a", "easy", 5, False), CompletionRow("a", "easy", 9, True)]
    drawing = draw_completion_times([*rows, CompletionRow("b", "hard", NAN, True)])
    assert "easy, a: 1 of 2 succeeded, in 5 to 5 s" in drawing.alt
    assert [tick.get_text() for tick in drawing.figure.axes[0].get_yticklabels()] == [
        "easy\na: 1 of 2"
    ]


@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(lambda: draw_histogram({"a": [NAN]}, "x"), id="histogram"),
        pytest.param(lambda: draw_box_plot({}, "x"), id="box plot"),
        pytest.param(
            lambda: draw_bootstrap_distribution([], Interval(0, 0, 0), "x"), id="bootstrap"
        ),
        pytest.param(lambda: draw_forest([], "x"), id="forest"),
        pytest.param(lambda: draw_success_bars([]), id="success bars"),
        pytest.param(lambda: draw_success_heat_map(["a"], ["b"], [[1, 2]]), id="heat map"),
        pytest.param(lambda: draw_success_heat_map([], [], []), id="empty heat map"),
        pytest.param(lambda: draw_completion_times([]), id="times"),
        pytest.param(
            lambda: draw_pair_lines([PairRow("1", NAN, 1)], "a", "b", "x"), id="pairs"
        ),
        pytest.param(lambda: draw_cost_quality([], "x"), id="cost"),
        pytest.param(lambda: draw_learning_curves({"a": [([1], [NAN])]}, "x"), id="curves"),
        pytest.param(
            lambda: draw_learning_curves({"a": [([1, 2], [1])]}, "x"), id="ragged curve"
        ),
        pytest.param(lambda: mean_curve([]), id="mean of no runs"),
        pytest.param(lambda: draw_radial(["x", "y"], {"a": [1, 1]}), id="two axes"),
        pytest.param(lambda: draw_radial(["x", "y", "z"], {"a": [1, 1]}), id="a value too few"),
        pytest.param(lambda: draw_radial(["x", "y", "z"], {"a": [1, 1, 2]}), id="not scaled"),
        pytest.param(lambda: draw_radial(["x", "y", "z"], {"a": [None] * 3}), id="no value"),
        pytest.param(lambda: draw_variance_panels([], threshold=0.05, runs=2), id="variance"),
        pytest.param(
            lambda: draw_versions_over_time(
                [VersionRow("v1", Interval(NAN, NAN, NAN), 0)], "x"
            ),
            id="versions",
        ),
    ],
)
def test_undrawable_data_raises_a_clear_error(draw: Any) -> None:
    with pytest.raises(UsageError, match=r"\w+ \w+ \w+"):
        draw()


def test_model_keeps_its_colour_if_an_earlier_one_is_not_drawn() -> None:
    known, quality = Interval(1, NAN, NAN), Interval(5, NAN, NAN)
    points = [CostPoint("free", None, quality), CostPoint("paid", known, quality)]
    assert group_style(1).colour.lower() in draw_cost_quality(points, "reward").svg.lower()
    assert group_style(0).colour.lower() not in draw_cost_quality(points, "reward").svg.lower()
    never, once = Interval(0, 0, 0.5), Interval(0.5, 0.1, 0.9)
    rows = [RateRow(name, {"eat_cow": rate}, 3) for name, rate in (("a", never), ("b", once))]
    drawing = draw_rate_bars(rows, ["eat_cow"], {})
    assert group_style(1).colour.lower() in drawing.svg.lower()
    assert group_style(0).colour.lower() not in drawing.svg.lower()
