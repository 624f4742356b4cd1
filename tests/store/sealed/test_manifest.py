"""A sealed folder is told from a changed one, by us and by sha256sum, and nothing outside it is ever read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perf_diagnostics.errors import ManifestError
from perf_diagnostics.store.sealed.manifest import Verification, create, extend, verify
from tests.store.examples import NOW

UNUSUAL = [
    "a b.txt",
    "=cmd()",
    "naïve-漢.txt",
    "new\nline",
    "back\\slash",
    "cr\r",
    " leading",
    "*star",
    "#hash",
    "a\\\nb",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "run"
    (root / "trials" / "0123456789ab").mkdir(parents=True)
    (root / "run.json").write_text("{}\n")
    (root / "trials" / "0123456789ab" / "result.json").write_text("result")
    (root / "empty").write_bytes(b"")
    sealed(root)
    return root


def sealed(root: Path) -> Path:
    return create(root, tool="perf-diagnostics 0.1.0", now=NOW)


def sha256sum_passes(root: Path) -> bool:
    return (
        subprocess.run(
            ["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=root, capture_output=True, check=False
        ).returncode
        == 0
    )


def contents(root: Path) -> dict[str, bytes]:
    return {
        p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file() and not p.is_symlink()
    }


def rewrite(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Forge the manifest, and leave SHA256SUMS as it was."""
    body = json.loads((root / "manifest.json").read_text())
    change(body)
    (root / "manifest.json").write_text(json.dumps(body))


def test_the_manifest_lists_every_file_sorted_with_checksum_and_size(folder: Path) -> None:
    body = json.loads((folder / "manifest.json").read_text())
    assert body["generated_at"] == "2026-11-21T02:31:05+00:00"
    assert body["tool"] == "perf-diagnostics 0.1.0"
    assert body["files"] == [
        {"path": "empty", "checksum": hashlib.sha256(b"").hexdigest(), "size": 0},
        {"path": "run.json", "checksum": hashlib.sha256(b"{}\n").hexdigest(), "size": 3},
        {"path": "trials/0123456789ab/result.json", "checksum": hashlib.sha256(b"result").hexdigest(), "size": 6},
    ]
    assert verify(folder) == Verification(checked=3)
    assert verify(folder).ok
    assert sha256sum_passes(folder)


def test_sealing_again_gives_the_same_bytes(folder: Path) -> None:
    before = contents(folder)
    sealed(folder)
    assert contents(folder) == before


def test_sums_are_byte_for_byte_what_sha256sum_writes(tmp_path: Path) -> None:
    for name in UNUSUAL:
        (tmp_path / name).write_text(name)
    sealed(tmp_path)
    names = sorted([*UNUSUAL, "manifest.json"])
    written = subprocess.run(["sha256sum", "--", *names], cwd=tmp_path, capture_output=True, check=True).stdout
    assert (tmp_path / "SHA256SUMS").read_bytes() == written
    assert sha256sum_passes(tmp_path)
    assert verify(tmp_path).ok


@pytest.mark.parametrize("name", UNUSUAL)
def test_a_change_of_an_unusually_named_file_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("a")
    sealed(tmp_path)
    (tmp_path / name).write_text("b")
    assert verify(tmp_path).modified == (name,)
    assert not sha256sum_passes(tmp_path)


def test_a_file_that_cannot_be_written_is_named_and_no_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").mkdir()  # which no file can replace
    with pytest.raises(ManifestError, match=r"/manifest\.json cannot be written: "):
        create(tmp_path, tool="t", now=NOW)


def test_an_empty_folder_can_be_sealed(tmp_path: Path) -> None:
    sealed(tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_text())["files"] == []
    assert verify(tmp_path).ok
    assert sha256sum_passes(tmp_path)


def test_locks_and_temporary_files_are_left_out(folder: Path) -> None:
    (folder / ".lock").write_text("pid 1")
    (folder / "trials" / ".run.json.0123456789ab.tmp").write_text("{")
    assert verify(folder).ok
    sealed(folder)
    assert len(json.loads((folder / "manifest.json").read_text())["files"]) == 3


def test_the_manifests_of_inner_folders_are_files_like_any_other(folder: Path) -> None:
    outer = folder.parent
    sealed(outer)
    assert verify(outer).ok
    (folder / "SHA256SUMS").write_text("forged")
    assert verify(outer).wrong_size == ("run/SHA256SUMS",)


def test_a_moved_or_linked_folder_still_verifies(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "other name"
    shutil.copytree(folder, moved)
    shutil.rmtree(folder)
    assert verify(moved).ok
    (tmp_path / "link").symlink_to(moved)
    assert verify(tmp_path / "link").ok


def test_each_kind_of_change_is_told_apart_and_verifying_writes_nothing(folder: Path) -> None:
    (folder / "more").write_text("x")
    (folder / "gone").write_text("x")
    sealed(folder)
    (folder / "gone").unlink()
    (folder / "run.json").write_text("[]\n")  # same size
    (folder / "more").write_text("xx")
    (folder / "trials" / "new").write_text("x")
    before = contents(folder)
    found = verify(folder)
    assert found == Verification(
        missing=("gone",), modified=("run.json",), wrong_size=("more",), extra=("trials/new",), checked=5
    )
    assert not found.ok
    assert contents(folder) == before


def test_a_file_in_place_of_a_folder_is_a_missing_file(folder: Path) -> None:
    shutil.rmtree(folder / "trials")
    (folder / "trials").write_text("x")
    found = verify(folder)
    assert (found.missing, found.extra) == (("trials/0123456789ab/result.json",), ("trials",))


def test_a_folder_in_place_of_a_file_is_unsafe(folder: Path) -> None:
    (folder / "empty").unlink()
    (folder / "empty").mkdir()
    assert verify(folder).unsafe == ("'empty': 'empty' is a folder",)


# --- tampering with the seal itself ------------------------------------------------------------------------------


def test_a_changed_manifest_is_told_by_the_sums(folder: Path) -> None:
    (folder / "run.json").write_text("[]\n")
    checksum = hashlib.sha256(b"[]\n").hexdigest()
    rewrite(folder, lambda body: body["files"][1].update(checksum=checksum))
    assert verify(folder).modified == ("SHA256SUMS", "manifest.json")
    assert not sha256sum_passes(folder)


def test_an_entry_taken_out_of_the_manifest_is_told(folder: Path) -> None:
    rewrite(folder, lambda body: body["files"].pop(0))
    found = verify(folder)
    assert (found.extra, found.modified) == (("empty",), ("SHA256SUMS", "manifest.json"))


def test_a_changed_date_is_told(folder: Path) -> None:
    rewrite(folder, lambda body: body.update(generated_at="2020-01-01T00:00:00+00:00"))
    assert verify(folder).modified == ("manifest.json",)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("0", "1", 1),
        lambda text: text + text.splitlines()[0] + "\n",  # a line twice
        lambda text: "".join(text.splitlines(keepends=True)[1:]),
        lambda text: "".join(line for line in text.splitlines(keepends=True) if "manifest.json" not in line),
        lambda text: text.rstrip("\n"),
        lambda text: text + "not a line\n",
        lambda text: text + "0" * 64 + "  ../../etc/passwd\n",
        lambda _text: "",
        lambda _text: "\udcff",
    ],
)
def test_changed_sums_are_told(folder: Path, change: Callable[[str], str]) -> None:
    text = change((folder / "SHA256SUMS").read_text())
    (folder / "SHA256SUMS").write_bytes(text.encode("utf-8", "surrogateescape"))
    found = verify(folder)
    assert "SHA256SUMS" in found.modified
    assert not found.ok


def test_missing_sums_are_told(folder: Path) -> None:
    (folder / "SHA256SUMS").unlink()
    assert verify(folder) == Verification(missing=("SHA256SUMS",), checked=3)


# --- entries that must not be followed ---------------------------------------------------------------------------

HOSTILE = [
    ("../secret", "leads out of the folder"),
    ("trials/../../secret", "leads out of the folder"),
    ("trials/..", "leads out of the folder"),
    ("/etc/passwd", "is absolute"),
    ("//server/share", "is absolute"),
    ("C:\\secret", "is absolute"),
    ("C:secret", "is absolute"),
    ("\\\\server\\share\\x", "is absolute"),
    ("\\secret", "is absolute"),
    ("..\\secret", "leads out of the folder"),
    ("trials\\..\\..\\secret", "leads out of the folder"),
    ("", "is empty"),
    ("./run.json", "spelling is not plain"),
    ("trials//x", "spelling is not plain"),
    ("trials/", "spelling is not plain"),
    ("run.json\0.txt", "holds a NUL"),
    ("\ud800", "is not valid Unicode"),
    ("-", "standard input"),
    ("manifest.json", "does not list itself"),
    ("SHA256SUMS", "does not list itself"),
]


@pytest.mark.parametrize(("path", "reason"), HOSTILE)
def test_an_entry_that_leads_elsewhere_is_unsafe_and_not_read(
    folder: Path, path: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = folder.parent / "secret"
    secret.write_text("secret")
    opened: list[str] = []
    real_open = os.open
    monkeypatch.setattr(os, "open", lambda p, *a, **k: opened.append(os.fspath(p)) or real_open(p, *a, **k))
    checksum = hashlib.sha256(b"secret").hexdigest()
    rewrite(folder, lambda body: body["files"].append({"path": path, "checksum": checksum, "size": 6}))
    (entry,) = verify(folder).unsafe
    assert entry.startswith(f"{path!r}: ")
    assert reason in entry
    assert len(opened) == 4  # three files and the manifest
    assert all(Path(name).parent.is_relative_to(folder) for name in opened)


def test_an_entry_that_stands_twice_is_unsafe(folder: Path) -> None:
    rewrite(folder, lambda body: body["files"].append(body["files"][0]))
    assert verify(folder).unsafe == ("'empty': listed twice",)


@pytest.mark.parametrize("inside", [True, False])
def test_a_link_in_place_of_a_file_is_unsafe_wherever_it_leads(folder: Path, inside: bool) -> None:
    copy = folder / "trials" / "copy" if inside else folder.parent / "copy"
    shutil.move(folder / "run.json", copy)
    (folder / "run.json").symlink_to(copy)
    found = verify(folder)
    assert found.unsafe == ("'run.json': 'run.json' is a link",)
    assert found.extra == (("trials/copy",) if inside else ())


def test_a_link_in_place_of_a_parent_folder_is_unsafe(folder: Path) -> None:
    outside = folder.parent / "outside"
    shutil.move(folder / "trials", outside)
    (folder / "trials").symlink_to(outside)
    assert verify(folder).unsafe == (
        "'trials': it is a link",
        "'trials/0123456789ab/result.json': 'trials' is a link",
    )


def test_a_new_link_or_pipe_is_unsafe_and_not_opened(folder: Path) -> None:
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "loop").symlink_to(".")
    os.mkfifo(folder / "pipe")  # opening it for reading would wait for ever
    assert verify(folder).unsafe == ("'link': it is a link", "'loop': it is a link", "'pipe': it is a special file")


def test_a_listed_file_that_became_a_pipe_is_not_opened(folder: Path) -> None:
    (folder / "run.json").unlink()
    os.mkfifo(folder / "run.json")
    assert verify(folder).unsafe == ("'run.json': 'run.json' is a special file",)


@pytest.mark.parametrize("name", ["manifest.json", "SHA256SUMS"])
def test_a_seal_that_is_a_link_or_a_pipe_is_refused(folder: Path, name: str) -> None:
    shutil.move(folder / name, folder.parent / name)
    (folder / name).symlink_to(folder.parent / name)
    with pytest.raises(ManifestError, match="is a link"):
        verify(folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ManifestError, match="is a special file"):
        verify(folder)


@pytest.mark.parametrize("target", ["run.json", "/etc/passwd", "nowhere", "."])
def test_a_folder_with_a_link_is_not_sealed(folder: Path, target: str) -> None:
    (folder / "link").symlink_to(target)
    before = contents(folder)
    with pytest.raises(ManifestError, match="link is a link; put a copy of the file there"):
        sealed(folder)
    assert contents(folder) == before


def test_a_folder_with_a_pipe_is_not_sealed(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(ManifestError, match="pipe is a special file"):
        sealed(folder)


@pytest.mark.parametrize("name", [b"C:x", b"\\x", b"..\\x", b"\xff", b"-"])
def test_a_name_that_could_not_be_verified_elsewhere_is_not_sealed(folder: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("x")
    with pytest.raises(ManifestError, match=r"cannot stand in a manifest: .* Rename it"):
        sealed(folder)


# --- what is no manifest -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"files": {}}',
        b'{"files": [1]}',
        b'{"files": [{"path": 1, "checksum": "", "size": 0}]}',
        b'{"files": [{"path": null}]}',
        b'{"files": [{"path": "a", "checksum": "xyz", "size": 0}]}',
        b'{"files": [{"path": "a", "checksum": "' + b"A" * 64 + b'", "size": 0}]}',
        b'{"files": [{"path": "a", "checksum": "' + b"0" * 64 + b'", "size": "0"}]}',
        b'{"files": [{"path": "a", "checksum": "' + b"0" * 64 + b'", "size": -1}]}',
        b'{"files": [{"path": "a", "checksum": "' + b"0" * 64 + b'", "size": true}]}',
        b'{"files": [{"path": "a", "checksum": "' + b"0" * 64 + b'", "size": NaN}]}',
        b'{"files": [], "files": []}',
    ],
)
def test_a_malformed_manifest_is_an_error_and_not_a_verdict(folder: Path, content: bytes) -> None:
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(ManifestError, match=r"manifest\.json"):
        verify(folder)


def test_a_folder_that_was_never_sealed_says_how_to(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="`perf-diagnostics manifest create` writes one"):
        verify(tmp_path)
    for deed in (verify, sealed):
        with pytest.raises(ManifestError, match="is not a folder"):
            deed(tmp_path / "nowhere")


# --- sealing what is new ------------------------------------------------------------------------------------------


def extended(root: Path) -> tuple[str, ...]:
    return extend(root, tool="perf-diagnostics 0.1.0", now=NOW, renewed=lambda path: path == "report.html")


def test_extending_a_whole_seal_or_none_is_sealing(folder: Path) -> None:
    (folder / "new").write_text("x")
    assert extended(folder) == ()
    assert verify(folder) == Verification(checked=4)
    for name in ("manifest.json", "SHA256SUMS"):
        (folder / name).unlink()
    assert extended(folder) == ()
    assert verify(folder) == Verification(checked=4) and sha256sum_passes(folder)


def test_what_was_sealed_and_changed_goes_on_being_told_until_it_is_sealed_deliberately(folder: Path) -> None:
    (folder / "gone").write_text("x")
    (folder / "report.html").write_text("first")
    sealed(folder)
    (folder / "gone").unlink()
    (folder / "run.json").write_text("[]\n")  # same size
    (folder / "empty").write_text("no more")
    (folder / "report.html").write_text("again")
    (folder / "report.pdf").write_text("new")
    for _ in range(2):
        assert extended(folder) == ("empty", "gone", "run.json")
        # gone, empty, report.html, report.pdf, run.json and the trial's result
        broken = Verification(missing=("gone",), modified=("run.json",), wrong_size=("empty",), checked=6)
        assert verify(folder) == broken
        assert not sha256sum_passes(folder)
    (folder / "run.json").write_text("{}\n")  # what it was
    assert extended(folder) == ("empty", "gone")
    sealed(folder)
    assert verify(folder) == Verification(checked=5)


@pytest.mark.parametrize("name", ["manifest.json", "SHA256SUMS"])
@pytest.mark.parametrize("how", [lambda path: path.unlink(), lambda path: path.write_text(path.read_text() + " ")])
def test_a_seal_that_was_changed_itself_is_not_replaced(folder: Path, name: str, how: Callable[[Path], Any]) -> None:
    how(folder / name)
    before = contents(folder)
    with pytest.raises(ManifestError, match="manifest create"):
        extended(folder)
    assert contents(folder) == before


def test_a_seal_of_something_unsafe_is_not_replaced(folder: Path) -> None:
    (folder / "empty").unlink()
    (folder / "empty").mkdir()
    with pytest.raises(ManifestError, match="it holds 'empty': 'empty' is a folder"):
        extended(folder)
