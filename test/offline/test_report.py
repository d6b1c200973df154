"""The page holds what a reader needs, stands alone, and never interprets what it is given."""

import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("matplotlib")

from offline.synthetic_run import some_run

from heisd_ros.errors import DataError
from heisd_ros.offline import plots, report
from heisd_ros.offline.report_page import report_html, write_report
from heisd_ros.offline.report_sections import accept_length_definition
from heisd_ros.offline.run_record import save_record


class Reader(HTMLParser):
    """Collects tags, attributes and visible text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.links, self.words = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in {"src", "href"}]

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def page():
    return report_html([some_run("heisd", steps=60), some_run("ar", steps=71)])


def test_the_page_shows_task_outcome_and_comparison(page):
    text = Reader(page).text
    assert "pick up the black bowl and place it on the plate" in text
    assert "libero_spatial task 0, initial state 3" in text
    assert "HeiSD success Autoregressive success HeiSD solved the task in 60 steps" in text
    # 60 steps: 27 of skipped kinds and modes give 137 forwards, against 7 in each AR step.
    forwards = sum(row.forwards for row in some_run("heisd", steps=60).rows) / 60
    assert f"{forwards:.2f} {7 / forwards:.1f} times fewer than autoregressive" in text


def test_the_page_has_every_section(page):
    text = Reader(page).text
    for title in (
        "In figures",
        "What happened",
        "Where the arm went",
        "How each action was decoded",
        "Where the time went",
        "Reasons and faults",
        "What the words mean",
        "Versions, machine and commands",
        "not the paper's times",
        "heisd demo --method ar",
        "a test machine",
    ):
        assert title in text


def test_the_page_needs_nothing_beside_itself(page):
    reader = Reader(page)
    # Per run: 6 key pictures and 3 plots.
    assert reader.tags.count("img") == 18
    assert all(link.startswith("data:image/png;base64,") for link in reader.links)
    assert not {"script", "link", "iframe", "object"} & set(reader.tags)
    assert "http" not in re.sub(r'"data:[^"]*"', "", page).replace("http-equiv", "")


def test_markup_in_a_record_stays_text():
    evil = '<script>alert("x")</script><img src=x onerror=y>'
    run = some_run(
        steps=12,
        instruction=evil,
        machine=evil,
        suite=evil,
        commands=(evil,),
        versions={evil: evil},
        config={evil: evil},
        counts={evil: 2},
        notes=(evil,),
        end_reason=evil,
        crash=evil,
        method=evil,
    )
    reader = Reader(report_html([run]))
    assert "script" not in reader.tags
    assert reader.tags.count("img") == 9
    assert reader.text.count('<script>alert("x")</script>') >= 10


def test_reasons_and_faults_are_counted():
    run = some_run(steps=10, counts={"/odd: unknown type": 74})
    rows = [*run.rows]
    rows[3] = type(rows[3])(0.15, reason="no_retrieval", stage_ms={"total": 1.0}, guard="clipped")
    text = Reader(report_html([some_run(rows=tuple(rows), counts=run.counts)])).text
    assert "decision: no_retrieval 1" in text
    assert "guard: clipped 1" in text
    assert "/odd: unknown type 74" in text


def test_a_run_without_poses_or_times_has_a_page():
    run = some_run(steps=3, frames=())
    bare = tuple(type(row)(row.stamp_s, kind=row.kind, forwards=7) for row in run.rows)
    text = Reader(report_html([some_run(rows=bare, frames=())])).text
    assert "3 control steps" not in text or "success" in text
    assert "Where the arm went" in text


def test_a_crashed_run_without_decisions_is_shown_and_a_run_without_anything_refused(tmp_path):
    crashed = some_run("heisd", rows=(), frames=(), success=False, crash="ModelError: no weights")
    text = Reader(report_html([crashed, some_run("ar", steps=5)])).text
    assert "ModelError: no weights" in text
    with pytest.raises(DataError, match="no decision"):
        write_report([some_run("heisd", rows=(), frames=())], tmp_path / "page.html")
    with pytest.raises(DataError, match="at least one"):
        write_report([], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_the_accept_length_is_defined_in_one_place():
    assert accept_length_definition().startswith("Accept length of a step: the tokens gained per")


def test_the_same_record_gives_the_same_page():
    runs = [some_run("heisd", steps=8), some_run("ar", steps=9)]
    assert report_html(runs) == report_html(runs)


def test_paths_that_are_compared_have_one_scale():
    limits = plots.path_limits([some_run("heisd"), some_run("ar")])
    sides = limits[1] - limits[0]
    assert sides == pytest.approx([sides[0]] * 3)


def test_the_verb_writes_the_page_of_saved_runs(tmp_path, capsys):
    save_record(some_run("heisd", steps=5), tmp_path / "heisd")
    save_record(some_run("ar", steps=5), tmp_path / "ar")
    assert report.main([str(tmp_path / "heisd"), str(tmp_path / "ar")]) == 0
    path = tmp_path / "heisd" / "report.html"
    assert capsys.readouterr().out.strip() == str(path)
    assert "Autoregressive" in path.read_text(encoding="utf-8")
