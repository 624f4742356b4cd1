"""A report in the hand: prints the answer on one screen, shows itself in a notebook, saves itself in any format."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Diagnosis, Finding, Verdict
from perf_diagnostics.diagnose.rule_parts.experiments import Experiments
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Run
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.formats.renderer import RENDERERS, save_report
from perf_diagnostics.report.model import Report
from perf_diagnostics.report.words import counted

_SUFFIXES = {".html": "html", ".htm": "html", ".pdf": "pdf", ".pptx": "pptx", ".md": "md", ".json": "json"}


def _shown(value: object) -> str:
    """What somebody gave instead, on one line."""
    return " ".join(reprlib.repr(value).split())


@dataclass(frozen=True, repr=False)
class BottleneckReport:
    """What the rules found, with the report around it.

    ``print(report)`` shows the answer on one screen, and so does a notebook, without scripts. The whole of it comes
    from :meth:`to_markdown` and :meth:`save`.
    """

    report: Report

    @classmethod
    def of(
        cls,
        run: Run | None,
        *,
        experiments: Experiments | None = None,
        traces: Mapping[str, Path] | None = None,
        generated_at: str | None = None,
    ) -> BottleneckReport:
        """The report of any records: of ``attached.run`` after a loop of one's own, or of ``RunFolder.open(p).read()``.

        Args:
            run: what was measured.
            experiments: what was tried of the advice, if anything was: ``read_experiments(p)`` of a run's folder.
            traces: profiler windows by trial id: ``attached.traces``, or ``RunFolder.open(p).traces()``.
            generated_at: the time that stands in the report (ISO 8601); default: now.

        Raises:
            InvalidSettings: there is no run: inside the block, measuring turned off, or not one step seen; or something
                else was given.
        """
        if run is None:
            raise InvalidSettings(
                "There is no run to report on: the loop has not ended, saw no step, or was not measured "
                "(PERF_DIAGNOSTICS_DISABLED); take the report after the block."
            )
        if not isinstance(run, Run):
            raise InvalidSettings(
                f"run={_shown(run)} is no Run; give attached.run, profiler.run, or, of a folder under results/, "
                "RunFolder.open(folder).read()."
            )
        moment = datetime.now(UTC).isoformat(timespec="seconds") if generated_at is None else generated_at
        return cls(build_report(run, diagnose(run, experiments=experiments, traces=traces), generated_at=moment))

    @property
    def diagnosis(self) -> Diagnosis:
        return self.report.diagnosis

    @property
    def verdict(self) -> Verdict | None:
        """The one thing to read first; None where the evidence is too thin."""
        return self.report.diagnosis.verdict

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that was found, the most worthwhile first."""
        return self.report.diagnosis.findings

    def to_markdown(self) -> str:
        """The whole report as GitHub-flavoured Markdown: every finding with its evidence, every trial, every gap."""
        text: str = RENDERERS["md"].render(self.report).decode()
        return text

    def save(self, path: str | Path) -> Path:
        """Write the report; the suffix decides the format: .html, .pdf, .pptx, .md or .json.

        Raises:
            InvalidSettings: another suffix, or no path.
            FormatUnavailable: a library that the format needs is missing; the text says how to get it.
        """
        if not isinstance(path, str | os.PathLike):
            raise InvalidSettings(f"path={_shown(path)} is no path; give one such as 'report.html'.")
        target = Path(path)
        name = _SUFFIXES.get(target.suffix.lower())
        if name is None:
            raise InvalidSettings(f"{target.name!r}: save a report as one of {', '.join(sorted(_SUFFIXES))}.")
        return save_report(self.report, target, name)

    def __repr__(self) -> str:
        """What an interactive session shows of it: the verdict, and where the rest is."""
        found = counted(len(self.findings), "finding")
        return (
            f"<{self.report.headline.rstrip('.')}. {found}; print() shows the answer, .save('report.html') all of it>"
        )

    def __str__(self) -> str:
        from perf_diagnostics.report.summary import summary_text

        return summary_text(self.report)

    def _repr_markdown_(self) -> str:
        from perf_diagnostics.report.formats.markdown import render_short_markdown

        return render_short_markdown(self.report)

    def _repr_html_(self) -> str:
        from perf_diagnostics.report.formats.notebook import notebook_html

        return notebook_html(self.report)

    def _repr_mimebundle_(self, **_choice: object) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": str(self)}
