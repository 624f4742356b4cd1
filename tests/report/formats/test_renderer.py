"""Writing a report: all formats, one at a time, whole files or none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from perf_diagnostics.errors import FormatUnavailable, InvalidSettings, ReportError
from perf_diagnostics.report.formats import renderer
from perf_diagnostics.report.formats.renderer import FORMATS, RENDERERS, Skipped, Written, save_report, write_report
from perf_diagnostics.report.formats.templates import templates_dir

QUICK = ("html", "md", "json")


def test_the_formats_and_their_files_are_the_promised_ones():
    assert {name: tuple(r.file_name for r in renderers) for name, renderers in FORMATS.items()} == {
        "html": ("report.html",),
        "pdf": ("report.pdf",),
        "pptx": ("report.pptx",),
        "md": ("performance_report.md",),
        "json": ("report.json",),
        "plots": ("throughput_vs_batch_size.png", "time_breakdown.png", "memory_usage.png"),
    }


def test_every_format_is_written_into_a_new_folder(tmp_path, empty_report):
    folder = tmp_path / "new" / "folder"
    outcomes = write_report(empty_report, folder)
    assert all(isinstance(outcome, Written) for outcome in outcomes)
    assert {o.path.name for o in outcomes} == {r.file_name for many in FORMATS.values() for r in many}
    assert {p.name for p in folder.iterdir()} == {o.path.name for o in outcomes}  # and nothing beside
    for outcome in outcomes:
        assert outcome.path.stat().st_size > 1000


def test_a_format_that_is_unavailable_is_skipped_and_the_rest_is_written(tmp_path, empty_report, monkeypatch):
    def unavailable(_):
        raise FormatUnavailable("a library is missing; install it.")

    monkeypatch.setitem(FORMATS, "pdf", (renderer._File("report.pdf", unavailable),))
    outcomes = write_report(empty_report, tmp_path, ("pdf", "md"))
    assert outcomes == (
        Skipped("pdf", "a library is missing; install it."),
        Written("md", tmp_path / "performance_report.md"),
    )
    assert not (tmp_path / "report.pdf").exists()


def test_an_unknown_format_is_refused_before_anything_is_written(tmp_path, empty_report):
    with pytest.raises(InvalidSettings, match=r"'docx'.*html, pdf, pptx, md, json, plots"):
        write_report(empty_report, tmp_path, ("md", "docx"))
    assert list(tmp_path.iterdir()) == []


def test_a_format_asked_for_twice_is_written_once(tmp_path, empty_report):
    assert len(write_report(empty_report, tmp_path, ("md", "md"))) == 1


def test_an_old_report_is_replaced_whole_or_not_at_all(tmp_path, empty_report, monkeypatch):
    place = tmp_path / "performance_report.md"
    place.write_text("old")
    link = tmp_path / "link.md"
    link.hardlink_to(place)
    write_report(empty_report, tmp_path, ("md",))
    assert place.read_text().startswith("# Training performance")
    assert link.read_text() == "old"  # moved into place, not written over

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    before = place.read_bytes()
    with pytest.raises(ReportError, match=r"performance_report.md could not be written: No space left"):
        write_report(empty_report, tmp_path, ("md",))
    assert place.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"performance_report.md", "link.md"}


def test_a_folder_that_is_a_file_is_an_error_with_its_path(tmp_path, empty_report):
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match=r"file/report\.json could not be written"):
        write_report(empty_report, tmp_path / "file", ("json",))


def test_what_was_written_before_the_disk_was_full_is_named(tmp_path, empty_report):
    (tmp_path / "report.json").mkdir()  # a file cannot take its place
    with pytest.raises(ReportError, match=r"json could not be written: .*\. Written before: performance_report\.md\.$"):
        write_report(empty_report, tmp_path, ("md", "json"))


@pytest.mark.parametrize("name", QUICK)
def test_equal_reports_are_equal_files(tmp_path, report, name):
    write_report(report, tmp_path / "a", (name,))
    write_report(report, tmp_path / "b", (name,))
    file_name = RENDERERS[name].file_name
    assert (tmp_path / "a" / file_name).read_bytes() == (tmp_path / "b" / file_name).read_bytes()


def test_a_report_is_saved_where_the_caller_wants_it(tmp_path, empty_report):
    path = save_report(empty_report, tmp_path / "mine.md", "md")
    assert path.read_bytes() == RENDERERS["md"].render(empty_report)
    with pytest.raises(InvalidSettings, match="plots"):
        save_report(empty_report, tmp_path / "x", "plots")


def test_the_module_loads_no_heavy_library():
    code = (
        "import sys\n"
        "import perf_diagnostics.report.formats.renderer, perf_diagnostics.report.build\n"
        "heavy = {'jinja2', 'weasyprint', 'pptx', 'matplotlib', 'pandas', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_templates_are_found_in_a_checkout_and_in_a_wheel(tmp_path, monkeypatch):
    assert (templates_dir() / "report.html.j2").is_file()
    package = tmp_path / "site-packages" / "perf_diagnostics"
    home = package / "report" / "formats"
    home.mkdir(parents=True)
    monkeypatch.setattr("perf_diagnostics.report.formats.templates.__file__", str(home / "templates.py"))
    with pytest.raises(ReportError, match="install the package again"):
        templates_dir()
    (package / "templates").mkdir()
    (package / "templates" / "report.html.j2").write_text("")
    assert templates_dir() == package / "templates"
