"""Writes the /proc and /sys files of a pretended machine under a folder that then stands for its root."""

from collections.abc import Mapping
from pathlib import Path


def machine(root: Path, files: Mapping[str, str]) -> Path:
    """The root of a machine with these files, by their absolute path."""
    for path, text in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


#: A Docker container under cgroup v2 with a namespace of its own: its group is the mount's root.
VERSION_2 = {
    "/proc/self/cgroup": "0::/\n",
    "/proc/self/mountinfo": (
        "22 27 0:21 / /proc rw,nosuid - proc proc rw\n"
        "30 23 0:26 / /sys/fs/cgroup ro,nosuid,nodev - cgroup2 cgroup rw,nsdelegate\n"
    ),
}

#: The same machine's host, a job two groups deep.
VERSION_2_NESTED = {**VERSION_2, "/proc/self/cgroup": "0::/slurm/job_5\n"}

#: A Docker container under cgroup v1 without a namespace: the mount begins at the container's own group.
VERSION_1 = {
    "/proc/self/cgroup": (
        "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n0::/docker/abc\n"
    ),
    "/proc/self/mountinfo": (
        "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
        "36 31 0:33 /docker/abc /sys/fs/cgroup/systemd ro - cgroup cgroup rw,xattr,name=systemd\n"
    ),
}
