"""Pictures are well-formed, say what they show in words, and need no colour."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as tree
from dataclasses import replace
from pathlib import Path

import pytest
from planning import card, cluster, placed

from morpho import plan
from morpho.base.errors import MorphoError
from morpho.plan.predict.simulator import simulate
from morpho.plan.show.drawing import Drawing
from morpho.plan.show.pictures import certainty, gantt, plot

SVG = "{http://www.w3.org/2000/svg}"


def three(names: int = 4) -> plan.Plan:
    return placed(card(12), cluster(*(100, 50, 200, 20)[:names]), ("a", 0, 4), ("c", 4, 10), ("b", 10, 12))


def texts(path: Path) -> list[str]:
    return [element.text or "" for element in tree.parse(path).iter(f"{SVG}text")]


def test_the_cluster_shows_stages_links_and_bottleneck(tmp_path: Path) -> None:
    words = texts(plot(three(), tmp_path / "plan.svg"))
    for wanted in ("a", "b", "c", "d", "not used", "layers [0, 4)", "layers [4, 10)", "layers [10, 12)",
                   "BOTTLENECK: compute", "8 Gbit/s, f32", "stage 3"):
        assert wanted in words, wanted
    assert sum("BOTTLENECK" in word for word in words) == 1


def test_a_link_that_binds_is_marked(tmp_path: Path) -> None:
    p = placed(card(4, cut=25_000_000), cluster(1e5, 1e5), ("a", 0, 2), ("b", 2, 4))
    words = texts(plot(p, tmp_path / "plan.svg"))
    assert any(word.startswith("BOTTLENECK 100 ms") for word in words) and "BOTTLENECK: link" not in words


def test_width_of_links_follows_bandwidth(tmp_path: Path) -> None:
    p = three(3)
    wide = ((0.0, 1e7, 1e9), (1e7, 0.0, 1e8), (1e9, 1e8, 0.0))
    p = replace(p, cluster=replace(p.cluster, bandwidth_bytes_per_s=wide))
    lines = [float(element.get("stroke-width") or 0) for element in
             tree.parse(plot(p, tmp_path / "plan.svg")).iter(f"{SVG}polyline") if element.get("stroke") == "black"]
    assert sorted(lines) == [5.0, 7.0]


@pytest.mark.parametrize("what", ["cluster", "token", "steady", "front"])
def test_no_colour_and_everything_inside(tmp_path: Path, what: str) -> None:
    text = plot(three(), tmp_path / "picture.svg", what).read_text(encoding="utf-8")
    for colour in re.findall(r'(?:fill|stroke)="([^"]+)"', text):
        assert colour in ("black", "white", "none") or re.fullmatch(r"#(\w\w)\1\1|url\(#hatch\d+\)", colour)
    root = tree.fromstring(text)
    width, height = float(root.get("width") or 0), float(root.get("height") or 0)
    for element in root.iter(f"{SVG}text"):
        assert 0 <= float(element.get("x") or -1) <= width and 0 <= float(element.get("y") or -1) <= height


def test_a_gantt_has_a_bar_for_each_piece_of_work(tmp_path: Path) -> None:
    trace = simulate(three(), in_flight=2, passes=2)
    root = tree.fromstring(gantt(trace, "two").svg())
    bars = [element for element in root.iter(f"{SVG}rect") if element.get("stroke-width") == "0.8"]
    assert len(bars) == len(trace.spans) == 2 * 2 * 5
    assert {"a", "a -> c", "c", "c -> b", "b"} <= {element.text for element in root.iter(f"{SVG}text")}


def test_the_front_marks_the_chosen_plan(tmp_path: Path) -> None:
    p = three()
    here = {"latency_s": p.predicted.latency_s, "tokens_per_s": p.predicted.tokens_per_s, "nodes_used": 3}
    p = replace(p, front=({"latency_s": 0.05, "tokens_per_s": 10.0, "nodes_used": 1}, here))
    root = tree.parse(plot(p, tmp_path / "front.svg", "front"))
    assert sum(element.get("fill") == "black" for element in root.iter(f"{SVG}rect")) == 2
    assert sum(element.get("fill") == "none" for element in root.iter(f"{SVG}rect")) == 1
    assert {"1", "3"} <= {element.text for element in root.iter(f"{SVG}text")}


def test_how_sure_in_words() -> None:
    p = three()
    assert certainty(p) == "no bound known"
    assert certainty(replace(p, optimal=True)) == "proven optimal"
    assert certainty(replace(p, lower_bound_s=p.objective_value_s / 1.05)).startswith("at most 5 % above the best")


def test_text_is_escaped(tmp_path: Path) -> None:
    drawing = Drawing(10, 10, "<&>")
    drawing.words(1, 1, "a < b & \"c\"")
    assert texts(drawing.save(tmp_path / "a.svg")) == ["a < b & \"c\""]


def test_faults(tmp_path: Path) -> None:
    with pytest.raises(MorphoError, match=r"plan\.pdf ends neither in \.svg nor in \.png"):
        plot(three(), tmp_path / "plan.pdf")
    with pytest.raises(MorphoError, match="no picture 'sky'"):
        plot(three(), tmp_path / "plan.svg", "sky")
    with pytest.raises(MorphoError, match="cannot be written"):
        plot(three(), tmp_path / "nowhere" / "plan.svg")


def test_png_without_matplotlib_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MorphoError, match=r"pip install 'morpho-tensor\[plot\]'"):
        plot(three(), tmp_path / "plan.png")


@pytest.mark.parametrize("what", ["cluster", "steady", "front"])
def test_png(tmp_path: Path, what: str) -> None:
    pytest.importorskip("matplotlib", reason="PNG needs the plot extra")
    assert plot(three(), tmp_path / "plan.png", what).read_bytes().startswith(b"\x89PNG")
