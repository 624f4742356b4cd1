"""The errors a caller may catch.

    PerfDiagnosticsError
    ├── InvalidSettings      a setting that cannot be run, with the value and what would do
    ├── WorkloadError        a workload that cannot be found, built or stepped
    ├── RunError             a run folder that is missing, foreign, newer than this version or in use
    ├── RecordError          a record on disk that cannot be read
    ├── ReportError          a report that cannot be written
    │   └── FormatUnavailable  … because a library or a native dependency of that format is missing
    └── ManifestError        a manifest that is missing, malformed or unsafe to follow

What goes wrong inside a trial (out of memory, a timeout, a crash) is an outcome, not an error.
"""


class PerfDiagnosticsError(Exception):
    """Base of every error raised on purpose; its text says what, with which value, and what now."""


class InvalidSettings(PerfDiagnosticsError, ValueError):
    """A setting or argument that cannot be run."""


class WorkloadError(PerfDiagnosticsError):
    """A workload that cannot be found, built or stepped."""


class RunError(PerfDiagnosticsError):
    """A run folder that is missing, foreign, newer than this version or in use."""


class RecordError(PerfDiagnosticsError):
    """A record on disk that cannot be read."""


class ReportError(PerfDiagnosticsError):
    """A report that cannot be written."""


class FormatUnavailable(ReportError):
    """A report format whose library or native dependency is missing; the text names the remedy."""


class ManifestError(PerfDiagnosticsError):
    """A manifest that is missing, malformed or unsafe to follow."""
