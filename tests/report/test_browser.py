"""The page in a real browser: no errors, no requests, sorting, both colour schemes, narrow windows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.formats.html import render_html
from tests.report.conftest import GENERATED_AT
from tests.report.rich_run import rich_diagnosis, rich_run
from tests.report.test_paper_width import with_long_words

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

#: Run in the page once it is loaded: what it asked for, whether it is too wide, and what sorting does.
PROBE = """
<script>
window.addEventListener("load", () => {
  const table = document.querySelector("table.sortable");
  const heads = [...table.tHead.rows[0].cells];
  const column = heads.findIndex((h) => h.textContent.startsWith("Throughput"));
  const shown = () => [...table.tBodies[0].rows].map((r) => r.cells[column].dataset.value ?? null);
  const rising = (heads[column].querySelector("button").click(), shown());
  const mark = heads[column].getAttribute("aria-sort");
  const falling = (heads[column].querySelector("button").click(), shown());
  const result = {
    requests: performance.getEntriesByType("resource").length,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    copy: !document.getElementById("copy-json").hidden,
    trials: JSON.parse(document.getElementById("report-data").textContent).data.trials.length,
    rising, falling, mark,
  };
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = JSON.stringify(result);
  document.body.append(out);
});
</script></body>"""


def chromium(folder: Path, page: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    return subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr",
            *arguments, page.as_uri(),
        ],
        check=True, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory, report) -> Path:
    path = tmp_path_factory.mktemp("browser") / "report.html"
    path.write_text(render_html(report).replace("</body>", PROBE), encoding="utf-8")
    return path


def probed(page: Path, folder: Path, width: int) -> tuple[dict, str]:
    done = chromium(folder, page, f"--window-size={width},900", "--dump-dom")
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.S)
    assert found is not None, done.stderr[-2000:]
    return json.loads(found[1]), done.stderr


def test_the_page_works_and_asks_for_nothing(page, tmp_path):
    result, log = probed(page, tmp_path, 1280)
    assert "CONSOLE" not in log
    assert result["requests"] == 0
    assert result["trials"] == 15
    assert result["copy"] is True
    assert result["wide"] <= 0
    rising = [float(value) for value in result["rising"] if value is not None]
    assert rising == sorted(rising)
    assert len(rising) == 13
    assert result["rising"][-2:] == [None, None]  # what was not measured stays last …
    assert result["falling"][-2:] == [None, None]  # … in both directions
    assert [float(v) for v in result["falling"][:13]] == sorted(rising, reverse=True)
    assert result["mark"] == "ascending"


def test_the_policy_stops_what_would_be_loaded(page, tmp_path):
    """A control: the same page with an image in it does complain, so silence above means something."""
    hostile = tmp_path / "hostile.html"
    text = page.read_text(encoding="utf-8").replace("<main>", '<main><img src="https://example.org/x.png">')
    hostile.write_text(text, encoding="utf-8")
    done = chromium(tmp_path, hostile, "--dump-dom")
    assert "CONSOLE" in done.stderr
    assert "Content Security Policy" in done.stderr


def test_a_narrow_window_is_not_overrun(page, tmp_path):
    result, _ = probed(page, tmp_path, 500)  # the narrowest window headless chromium opens
    assert result["wide"] <= 0


def test_the_sections_of_a_rich_run_do_not_overrun_a_narrow_window_either(tmp_path):
    run = rich_run()
    rich = build_report(run, rich_diagnosis(run), generated_at=GENERATED_AT)
    path = tmp_path / "rich.html"
    path.write_text(render_html(rich).replace("</body>", PROBE), encoding="utf-8")
    result, log = probed(path, tmp_path, 500)
    assert 'class="depth"' in path.read_text(encoding="utf-8")
    assert result["wide"] <= 0
    assert "CONSOLE" not in log


def test_a_long_name_leaves_its_number_in_sight(tmp_path):
    """The value stands within a narrow card, however long a word of its name is."""
    path = tmp_path / "long.html"
    probe = (
        PROBE[: PROBE.index("  const table")]
        + """
  const cells = [...document.querySelectorAll("article.warning table.evidence tbody tr")].map((row) => row.cells[1]);
  const card = document.querySelector("article.warning").getBoundingClientRect();
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = JSON.stringify({left: Math.max(...cells.map((c) => c.getBoundingClientRect().right)) - card.left,
    card: card.width});
  document.body.append(out);
});
</script></body>"""
    )
    long = with_long_words("metric")
    path.write_text(render_html(long).replace("</body>", probe), encoding="utf-8")
    result, _ = probed(path, tmp_path, 500)
    assert result["left"] < 0.7 * result["card"]


def test_light_and_dark_are_different_pages(page, tmp_path):
    means = {}
    for scheme, setting in (("light", "1"), ("dark", "0")):
        picture = tmp_path / f"{scheme}.png"
        chromium(
            tmp_path, page, "--window-size=1000,1400", f"--blink-settings=preferredColorScheme={setting}",
            f"--screenshot={picture}",
        )  # fmt: skip
        means[scheme] = float(np.asarray(Image.open(picture).convert("L")).mean())
    assert means["light"] > 225
    assert means["dark"] < 50
