"""`compare`: schedules next to each other, by name, as objects and as functions."""

import pytest

import minipipe as mp
from minipipe import comparison
from minipipe.comparison import table_of
from minipipe.order import ScheduleError
from minipipe.schedules import build


def all_forwards_first(device, K, M):
    return [f"F{i}" for i in range(M)] + [f"B{i}" for i in range(M)]


def test_a_row_has_what_was_counted_in_the_run():
    found = mp.compare("naive", "gpipe", "1f1b", K=4, M=8)
    head, *rows = repr(found).splitlines()[:4]
    assert head.split() == ["schedule", "makespan", "idle", "peak", "messages"]
    assert [row.split() for row in rows] == [
        ["naive", "96", "75.00", "%", "1", "48"], ["gpipe", "33", "27.27", "%", "8", "48"],
        ["1f1b", "33", "27.27", "%", "4", "48"],
    ]
    assert f"{table_of(found)}\n\n" in repr(found), "the table of `minipipe compare`"
    assert found["gpipe"] == mp.simulate(build("gpipe", 4, 8)) and len(found) == 3


def test_a_function_and_a_schedule_are_taken_as_well():
    own = build("1f1b", 2, 3)
    found = mp.compare(all_forwards_first, own, "1f1b", K=2, M=3, costs=mp.Costs(F=1, B=3))
    assert [*found] == ["all_forwards_first", "1f1b", "1f1b (2)"]
    assert found["1f1b"] == found["1f1b (2)"] == mp.simulate(own, mp.Costs(F=1, B=3))
    assert found["all_forwards_first"].makespan == 16  # (M + K - 1)(F + B)


def test_it_shows_and_saves_its_picture(tmp_path, monkeypatch):
    found = mp.compare("gpipe", "1f1b", K=2, M=4)
    found.save(tmp_path / "both.svg")
    text = (tmp_path / "both.svg").read_text()
    assert text.startswith("<?xml") and [*tmp_path.iterdir()] == [tmp_path / "both.svg"]
    assert [ax.get_title(loc="left").split(":")[0] for ax in found.plot().axes[:2]] == ["gpipe", "1f1b"]
    assert len(mp.plots.compare(found).axes) == len(found.plot().axes)
    page = found._repr_html_()
    assert page.startswith("<pre>schedule") and "data:image/png;base64," in page
    with pytest.raises(ValueError, match="its name must end in one of"):
        found.save(tmp_path / "both.txt")
    monkeypatch.setattr(comparison, "MOST_IN_A_CELL", 31)
    large = found._repr_html_()
    assert "<img" not in large and "has 32 spans" in large and large.startswith("<pre>schedule")


@pytest.mark.parametrize("make, error, words", [
    (lambda: mp.compare(), ValueError, "there is nothing to compare: pass schedules"),
    (lambda: mp.compare("gpip"), ValueError, "did you mean 'gpipe'"),
    (lambda: mp.compare(3), ValueError, "schedules has 3, which is not a schedule: pass a name"),
    (lambda: mp.compare("gpipe", K=0), ValueError, "K=0 must be at least 1"),
    (lambda: mp.compare(lambda device, K, M: ["F0"]), ScheduleError, "<lambda>.*device 0 never does 0B0"),
    (lambda: mp.compare(lambda device, K, M: [1]), ScheduleError, "<lambda>: .*1"),
])
def test_what_cannot_be_compared_is_named(make, error, words):
    with pytest.raises(error, match=f"(?s){words}"):
        make()
