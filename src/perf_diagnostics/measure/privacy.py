"""Takes out of command lines and environment variables what must not be in a record one passes on."""

from __future__ import annotations

import getpass
import re
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MASK = "***"

#: Stands for the mask until the command line is quoted for a shell, which would quote asterisks.
_HIDDEN = "@@hidden@@"

_SECRET_NAME = re.compile(r"token|key|secret|passw|pwd|credential|auth", re.IGNORECASE)

#: Parts of names that only look like it: a tokenizer is no token, and a keyboard or a monkey is no key.
_HARMLESS_NAME = re.compile(r"tokeni[sz]\w*|key(?:board|point|frame|word)s?|monkey|author", re.IGNORECASE)

#: ``--max-tokens 512`` counts tokens; a number is no secret there.
_COUNT_NAME = re.compile(r"tokens", re.IGNORECASE)

#: Secrets one knows by their shape, wherever they stand: Hugging Face, GitHub, GitLab, OpenAI-like, AWS, Slack, JWT.
_SECRET_SHAPE = re.compile(
    r"hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{16,}"
    r"|A(?:KIA|SIA)[A-Z0-9]{12,}|xox[a-z]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]+\.[\w-]+"
)
_URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
_ASSIGNMENT = re.compile(r"(--?)?([\w.+-]+)=(.*)", re.DOTALL)
_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)")
_NUMBER = re.compile(r"[\d_.,]+(?:e\d+)?[kKmMgG]?")
_HOME = re.compile(r"(?:/home|/Users|[A-Za-z]:\\Users)[/\\][^/\\\s:;,'\"]+")

#: Environment variables that change how a training runs, by whole name. Nothing else is ever read.
_ALLOWED_NAMES = """
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_DEVICE_MAX_CONNECTIONS
    CUBLAS_WORKSPACE_CONFIG NVIDIA_TF32_OVERRIDE HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK
    KMP_AFFINITY KMP_BLOCKTIME GOMP_CPU_AFFINITY OPENBLAS_NUM_THREADS VECLIB_MAXIMUM_THREADS NUMEXPR_NUM_THREADS
    LD_PRELOAD MALLOC_ARENA_MAX MALLOC_CONF TOKENIZERS_PARALLELISM HF_HUB_OFFLINE TRANSFORMERS_OFFLINE
    PYTHONHASHSEED PYTHONOPTIMIZE PYTHONMALLOC PYTHONDEVMODE PYTORCH_ENABLE_MPS_FALLBACK
    SLURM_JOB_ID SLURM_CPUS_PER_TASK SLURM_CPUS_ON_NODE SLURM_GPUS_ON_NODE SLURM_MEM_PER_NODE SLURM_NTASKS SLURM_NNODES
    SLURM_PROCID SLURM_LOCALID SLURM_ARRAY_TASK_ID RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE
    KAGGLE_KERNEL_RUN_TYPE COLAB_RELEASE_TAG
"""
ALLOWED_VARIABLES = frozenset(_ALLOWED_NAMES.split())
_ALLOWED_FAMILY = re.compile(
    r"(?:OMP|MKL|TORCH|TORCHINDUCTOR|TORCHDYNAMO|NCCL)_[A-Z0-9_]+|PYTORCH_(?:[A-Z]+_)?ALLOC_CONF"
)

#: Of those families, what names machines of the network or folders of a person.
_NAMES_A_PLACE = re.compile(r"NCCL_(?:COMM_ID|HOSTID)|TORCH\w*(?:HOST|ADDR|ENDPOINT)\w*|\w+_(?:DIR|PATH|FILE)")


@dataclass(frozen=True)
class Person:
    """What would name the user or the machine in a text: replaced by ``~``, ``<user>`` and ``<host>``."""

    home: str | None = None
    user: str | None = None
    host: str | None = None

    @classmethod
    def here(cls) -> Person:
        """The user who runs this process, as far as the system says."""
        try:
            home: str | None = str(Path.home())
        except RuntimeError:
            home = None
        try:
            user: str | None = getpass.getuser()
        except (OSError, KeyError, ImportError):  # a container's number without a name
            user = None
        try:
            host: str | None = socket.gethostname() or None
        except OSError:
            host = None
        return cls(home, user, host)

    def removed_from(self, text: str) -> str:
        """The text without homes, without folders of the user's name and without the machine's name."""
        if self.home and self.home.strip("/\\"):
            text = re.sub(rf"{re.escape(self.home)}(?![\w.-])", "~", text)
        text = _HOME.sub("~", text)
        if self.user and self.user != "root":
            text = re.sub(rf"(?<=[/\\]){re.escape(self.user)}(?![\w.-])", "<user>", text)
        # A short name (vm, gpu, train) is also a word that says something about the run.
        if self.host and (len(self.host) > 5 or not self.host.isalpha()):
            text = re.sub(rf"(?<![\w-]){re.escape(self.host)}(?![\w-])", "<host>", text)
        return text


def masked_command(command: Sequence[str], person: Person) -> str:
    """A command line as one would type it, without secrets and without names of people and machines.

    Masked are the values of options and assignments whose name contains token, key, secret, passw, pwd, credential or
    auth, logins in URLs, and secrets known by their shape. ``--tokenizer`` and ``--max-tokens 512`` stay.
    """
    shown: list[str] = []
    hide_next: str | None = None
    for argument in command:
        option = _OPTION.fullmatch(argument)
        # A flag such as --use-auth-token has no value: the next long option is not its secret.
        if hide_next is not None and not (option is not None and argument.startswith("--")):
            shown.append(_value(hide_next, argument))
        else:
            shown.append(_argument(argument))
        hide_next = option[1] if option is not None and _is_secret(option[1]) else None
    return person.removed_from(shlex.join(shown)).replace(_HIDDEN, MASK)


def allowed_variables(variables: Mapping[str, str], person: Person) -> dict[str, str]:
    """Those environment variables that change how a training runs, by an allow-list; never a token."""
    return {
        name: masked_text(variables[name], person)
        for name in sorted(variables)
        if name in ALLOWED_VARIABLES or _of_allowed_family(name)
    }


def masked_text(text: str, person: Person) -> str:
    """A text without secrets known by their shape, without logins in URLs, and without names of people and machines."""
    return person.removed_from(_hidden(text)).replace(_HIDDEN, MASK)


def _of_allowed_family(name: str) -> bool:
    family = _ALLOWED_FAMILY.fullmatch(name) is not None
    return family and not _is_secret(name) and _NAMES_A_PLACE.fullmatch(name) is None


def _argument(argument: str) -> str:
    """One argument that stands by itself; ``name=value`` is masked by its name."""
    assignment = _ASSIGNMENT.fullmatch(argument)
    if assignment is None or not _is_secret(assignment[2]):
        return _hidden(argument)
    dashes, name, value = assignment.groups()
    return f"{dashes or ''}{name}={_value(name, value)}"


def _value(name: str, value: str) -> str:
    """The value of an option whose name looks like a secret's."""
    counts = _COUNT_NAME.search(name) is not None and _NUMBER.fullmatch(value) is not None
    return value if counts else _HIDDEN


def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(_HARMLESS_NAME.sub("", name)) is not None


def _hidden(text: str) -> str:
    """A text without what is a secret by its own shape."""
    return _URL_LOGIN.sub(f"{_HIDDEN}@", _SECRET_SHAPE.sub(_HIDDEN, text))
