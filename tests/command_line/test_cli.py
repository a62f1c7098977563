"""The commands for schedules and plans, as a user meets them: what they print and what they write."""

import json
import re
import shlex

import pytest

import minipipe as mp
from minipipe.cli.main import main
from minipipe.cluster import ticks
from minipipe.order import in_copies, with_all_reduce
from minipipe.order.searching import Found
from minipipe.schedules import SCHEDULES, build


def run(capsys, words):
    """Run these words of a shell; return (exit status, what was printed, what was complained about)."""
    try:
        status = main(shlex.split(words))
    except SystemExit as exit:
        status = exit.code
    return status, *capsys.readouterr()


def test_timeline_reads_every_option_of_schedule_and_hardware(capsys, tmp_path, monkeypatch):
    """GPipe with K = M = 2 and latency 3: (M + K - 1)(F + B) + 2 (K - 1) 3 ticks.

    If 8 bytes occupy a link for 2 ticks, F1 leaves at 5 and arrives at 8, the two B of device 1 end at 13,
    and those of device 0 at 13 + 2 + 3 + 2: B1 has left by then. With sends that block, device 0 sends F0,
    then F1, and device 1 B1, then B0.
    """
    monkeypatch.setattr(
        "minipipe.cli.timeline.save_timeline", lambda trace, path, title: print("drawn:", title)
    )
    table = tmp_path / "mine.csv"
    table.write_text("0F0,0F1,,0B1,0B0\n,1F0,1F1,1B1,1B0\n")
    for options, title, makespan in [
        (f"--csv {table}", "mine", 9 + 6),
        ("--schedule gpipe --devices 2 --micro-batches 2", "gpipe", 9 + 6),
        (f"--csv {table} --costs F=1,B=2,message_bytes=8 --bandwidth 4", "mine", 20),
        (f"--csv {table} --blocking", "mine", 9 + 6 + 3 + 3),
        (f"--csv {table} --recompute", "mine+recompute", 9 + 6 + 2),
        ("--order 'F0 F1 B1 B0' 'F0 F1 B1 B0'", "custom", 9 + 6),
    ]:
        status, out, _ = run(capsys, f"timeline {options} --latency 3")
        assert status == 0 and out.startswith(f"{title}, 2 stages, 2 micro-batches\n"), out
        assert f"drawn: {title}, 2 stages" in out
        assert f"makespan                                {makespan} ticks" in out, out
        assert "device 1  " in out and "peak micro-batches per device           2 2" in out


@pytest.fixture
def undrawn(monkeypatch):
    """Print the names of the runs that `compare` would draw."""
    monkeypatch.setattr("minipipe.cli.compare.compare", lambda traces: print("drawn:", *traces))
    monkeypatch.setattr("minipipe.cli.compare.save_figure", lambda figure, path: None)


def test_compare_all_runs_what_sizes_allow_and_names_the_rest(capsys, tmp_path, undrawn):
    status, out, _ = run(capsys, "compare ALL -K 3 -M 4")
    rows = re.findall(r"^(\S+) +[\d.]+ +[\d.]+ %", out, re.MULTILINE)
    refused = re.findall(r"^left out: ([\w-]+): .+", out, re.MULTILINE)
    assert status == 0 and f"drawn: {' '.join(rows)}\n" in out
    assert {*rows, *refused} == {*SCHEDULES} and not {*rows} & {*refused}
    assert "chimera" in refused and "1f1b" in rows
    table = tmp_path / "mine.csv"
    table.write_text(build("1f1b", 2, 4).to_csv())
    status, out, _ = run(capsys, f"compare all {table} -K 2 -M 4")
    assert status == 0 and f"\n{table}" in out


def test_four_commands_split_samples(capsys, tmp_path):
    """2 copies of 2 stages."""
    setting = "--devices 2 --micro-batches 4 --replicas 2 --costs F=1,B=2,A=3 --latency 1"
    trace = mp.simulate(with_all_reduce(in_copies(build("gpipe", 2, 2), 2)), mp.Costs(A=3), mp.Link(1))
    assert trace.n_devices == 4
    makespan = ticks(trace.makespan)
    name = "gpipe in 2 copies+all-reduce, 2 stages, 4 micro-batches, 2 copies of the network"
    status, out, _ = run(capsys, f"timeline --schedule gpipe {setting} --output {tmp_path / 't.svg'}")
    assert status == 0 and name in out and f"makespan                                {makespan} ticks" in out
    assert "<svg" in (tmp_path / "t.svg").read_text()
    status, out, _ = run(capsys, f"explain --schedule gpipe {setting}")
    assert status == 0 and f"{name}: {makespan} ticks" in out and str(trace.explain()) in out
    status, out, _ = run(capsys, f"compare gpipe {setting} --output {tmp_path / 'c.svg'}")
    assert status == 0 and "4 devices: 2 replicas x 1 shards x 2, 4 micro-batches" in out
    assert f"gpipe     {makespan:>9}" in out and f"written: {tmp_path / 'c.svg'}" in out
    assert "<svg" in (tmp_path / "c.svg").read_text()
    status, out, _ = run(capsys, f"export --schedule gpipe {setting} --format text")
    assert status == 0 and out == f"{trace.to_text()}\n"


def test_compare_has_a_row_for_each_schedule_of_the_same_work(capsys, tmp_path, undrawn):
    """The makespans and peaks of K = 4, M = 8 in the papers' units, where stages of two on a device are half
    as long.
    """
    mine = tmp_path / "mine.csv"
    mine.write_text(build("1f1b", 4, 8).to_csv())
    status, out, _ = run(capsys, f"compare naive gpipe interleaved zb-v {mine} --costs F=1,I=1,W=1")
    rows = {
        words[0]: words[1:] for line in out.splitlines()[3:8] if (words := line.replace(" %", "").split())
    }
    assert status == 0
    assert out.splitlines()[2].split() == ["schedule", "makespan", "idle", "peak", "messages"]
    assert f"drawn: naive gpipe interleaved zb-v {mine}" in out
    assert "drawn: 1f1b gpipe zb-v\n" in run(capsys, "compare 1F1B,GPipe ZBV")[1]
    assert rows == {
        "naive": ["96", "75.00", "1", "48"],  # (K - 1)/K
        "gpipe": ["33", "27.27", "8", "48"],  # (K - 1)/(M + K - 1)
        "interleaved": ["28.5", "15.79", "5.5", "112"],
        "zb-v": ["25.5", "5.88", "4", "96"],
        str(mine): ["33", "27.27", "4", "48"],
    }
    status, _, complaint = run(capsys, f"compare gpipe {mine} --devices 2")
    assert status == 2
    assert "has 4 devices and 8 micro-batches, the others 2 and 8: pass --devices 4 --micro-b" in complaint


def test_explain_says_the_causes_and_the_critical_path(capsys):
    status, out, _ = run(capsys, "explain --schedule gpipe --devices 2 --micro-batches 2 --latency 1")
    trace = mp.simulate(build("gpipe", 2, 2), link=mp.Link(latency=1))
    assert status == 0 and str(trace.explain()) in out and "work 9 + links 2 = 11 ticks" in out
    shares = [line.split()[-2] for line in out.splitlines() if line.endswith(" %")]
    assert shares == [f"{100 * float(trace.bubble(of)):.2f}" for of in ("total", "ideal", "span", "worst")]
    trace = mp.simulate(build("1f1b", 2, 3), link=mp.Link(latency=1))
    out = run(capsys, "explain --devices 2 --micro-batches 3 --latency 1 --most-alive 2")[1]
    assert str(trace.explain(most_alive=2)) in out


def test_search_proves_its_schedule_or_says_that_it_did_not(capsys, tmp_path, monkeypatch):
    """(M + K - 1)(F + B) = 18 ticks for 1F1B, K = 3, M = 4, in its memory."""
    table = tmp_path / "best.csv"
    status, out, _ = run(capsys, f"search --devices 3 --micro-batches 4 --most-alive 3 2 1 --output {table}")
    best = mp.Schedule.from_csv(table)
    assert status == 0
    of_all = "no schedule with whole backwards and one stage a device takes fewer than"
    assert f"proved: {of_all} 18 ticks, in this memory (" in out
    assert "peak micro-batches per device           3 2 1" in out
    assert mp.simulate(best).makespan == 18 and mp.simulate(best).to_text() in out
    hint = "\nbackwards split into I and W may be faster: add --halves\n"
    assert hint in out
    out = run(capsys, "search --devices 2 --halves --most-alive 2 --latency 1 --costs F=1,I=1,W=1")[1]
    assert "I0" in out and "W0" in out and "peak micro-batches per device           2 " in out
    found, proved = (out.split(words)[1].split()[0] for words in ("makespan", "takes fewer than "))
    assert found == proved, "the latency counts in both"
    assert "no schedule with backwards in halves and one stage a device" in out and hint not in out
    monkeypatch.setattr("minipipe.cli.search.best_schedule", lambda *sizes: Found(best, 18, 17.5, False, 5))
    out = run(capsys, "search")[1]
    assert f"not proved: 18 ticks is the best found, and {of_all} 17.5; 5 partial schedules" in out
    monkeypatch.undo()
    out = run(capsys, "search --greedy --devices 8 --micro-batches 16 --most-alive 8 7 6 5 4 3 2 1")[1]
    # (M + K - 1)(F + B), as 1F1B; device 0 is there from the first tick to the last
    assert "longest span of a device                69 ticks, and its actions take 48 at most" in out
    assert "makespan                                69 ticks" in out and "made by rules, or by name" in out


def test_search_takes_spans_several_stages_and_less_kept_for_W(capsys):
    """Four devices that never wait after their first action take M (F + I + W) = 24 ticks each."""
    span = "longest span of a device                24 ticks, and its actions take 24 at most"
    search = "search --greedy --halves"
    out = run(capsys, f"{search} --objective span --most-alive 8 --kept-for-W 0.25")[1]
    assert span in out and "proved: no schedule has a shorter longest span" in out
    out = run(capsys, f"{search} --objective span --most-alive 2")[1]
    assert "proved" not in out and "only a search could say" in out
    out = run(capsys, f"{search} --in-a-v")[1]
    assert "8 stages" in out and "makespan                                25.5 ticks" in out      # as ZB-V
    out = run(capsys, "search --greedy --stages-per-device 2")[1]
    assert "makespan                                28.5 ticks" in out                # as interleaved 1F1B
    for option in "--in-a-v", "--stages-per-device 2", "--objective span", "--kept-for-W 0":
        status, _, complaint = run(capsys, f"search --halves {option}")
        assert status == 2 and option[:10] in complaint and "add --greedy" in complaint


@pytest.mark.parametrize("name", ["chimera", "dualpipe"])
def test_an_exported_table_with_two_copies_is_valid(capsys, tmp_path, name):
    table = tmp_path / "two.csv"
    status, out, err = run(capsys, f"export --schedule {name} --output {table}")
    assert (status, out) == (0, f"written: {table}\n")
    assert err == (f"minipipe: note: the schedule {name!r} has 2 copies of the network, and PyTorch has one: "
                   "it can read this table, but not run it\n")
    for options in "", f"--copy-of {' '.join(map(str, build(name, 4, 8).copy_of))}":
        status, out, err = run(capsys, f"validate {table} {options}")
        assert status == 0 and err == ""
        assert out.startswith("two, 4 stages, 8 micro-batches, 2 copies of the network, 4 devices\nvalid: ")


def test_a_table_with_communication_is_read_with_a_note(capsys, tmp_path):
    table = tmp_path / "comms.csv"
    table.write_text("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")
    status, out, err = run(capsys, f"validate {table}")
    assert status == 0 and "valid: T = 6 ticks" in out
    assert err.startswith("minipipe: note: cells of communication are left out: 1 SEND_F, 1 RECV_B, 1 RECV_F")


def test_validate_says_valid_or_all_faults(capsys, tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text(build("1f1b", 4, 8).to_csv())
    status, out, _ = run(capsys, f"validate {table} --micro-batches 8 --most-alive 4")
    assert status == 0 and "valid: T = 33 ticks with F=1,B=2; peak micro-batches per device: 4 3 2 1" in out
    status, out, _ = run(capsys, f"validate {table} --most-alive 2")
    assert status == 1
    assert "2 faults:\n- device 0: with 0F2, 3 micro-batches are alive at once, above the limit of 2" in out
    status, out, _ = run(capsys, f"validate {table} --micro-batches 9")
    assert status == 1 and out.count("8 (missing)") == 8
    table.write_text("".join(f"{s}F0," * 30 + "\n" for s in range(2)))
    status, out, _ = run(capsys, f"validate {table} --micro-batches 99")
    assert status == 1 and "\n396 faults:\n" in out and out.endswith("\n- and 376 more, of these kinds\n")
    table.write_text("0F0,0X0\n0Y0,\n")
    status, _, complaint = run(capsys, f"validate {table}")
    assert status == 2
    assert "malformed cells: 2" in complaint
    assert "row 2 (rank 1), column 1: '0Y0'" in complaint


def test_export_prints_a_table_if_not_told_otherwise(capsys):
    assert run(capsys, "export interleaved -K 2 -M 4") == (0, build("interleaved", 2, 4).to_csv(), "")


@pytest.mark.slow
def test_export_writes_each_format_and_prints_what_is_text(capsys, tmp_path):
    schedule = build("zb-v", 2, 3)
    options = "--schedule zb-v --devices 2 --micro-batches 3"
    assert run(capsys, f"export {options} --format csv") == (0, schedule.to_csv(), "")
    out = run(capsys, f"export {options} --format Text --costs F=2")[1]
    assert out == mp.simulate(schedule, mp.Costs(F=2)).to_text() + "\n"
    table, page, picture = tmp_path / "x.csv", tmp_path / "x.json", tmp_path / "x.pdf"
    for path in (table, page, picture):
        status, out, _ = run(capsys, f"export {options} --output {path} --tick '2 s' --latency 0.5")
        assert (status, out) == (0, f"written: {path}\n")
    assert table.read_text() == schedule.to_csv() and picture.read_bytes().startswith(b"%PDF")
    trace = mp.simulate(schedule, link=mp.Link(latency=0.5))
    assert json.loads(page.read_text()) == trace.to_chrome_trace(tick="2 s")
    page = mp.simulate(schedule).to_html(title="zb-v, 4 stages, 3 micro-batches")
    assert page.startswith("<!doctype html>") and run(capsys, f"export {options} --format html")[1] == page
    assert run(capsys, f"export --csv {table} --format csv")[1] == schedule.to_csv()


