"""Secrets and names of people and machines never reach a record; what explains a run stays."""

import pytest

from perf_diagnostics.measure.privacy import Person, allowed_variables, masked_command

ALICE = Person(home="/home/alice", user="alice", host="node-17.cluster")
SECRET = "s3cr3tValue99"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--hf-token", SECRET],
        ["--hf_token", SECRET],
        [f"--hf-token={SECRET}"],
        ["--hftoken", SECRET],
        ["--api-key", SECRET],
        [f"--apiKey={SECRET}"],
        ["--password", SECRET],
        ["--passwd", SECRET],
        ["--client-secret", SECRET],
        ["-token", SECRET],
        ["--token", f"-{SECRET}"],
        [f"HF_TOKEN={SECRET}"],
        [f"hub.token={SECRET}"],
        [f"+logger.wandb.api_key={SECRET}"],
        ["--tokens", SECRET],
        [f"https://alice:{SECRET}@example.org/repo.git"],
        ["--url", f"https://{SECRET}@example.org"],
    ],
)
def test_the_value_of_what_is_named_like_a_secret_is_masked(arguments: list[str]) -> None:
    shown = masked_command(["python", "train.py", *arguments, "--epochs", "3"], ALICE)
    assert SECRET not in shown
    assert "***" in shown
    assert shown.endswith("--epochs 3")


@pytest.mark.parametrize(
    "secret",
    [
        "hf_abcdefghijklmnopqrstuvwxyz",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "sk-proj-abcdefghijklmnop",
        "glpat-abcdefghijklmnopqrst",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def",
    ],
)
def test_a_secret_of_known_shape_is_masked_wherever_it_stands(secret: str) -> None:
    for arguments in ([secret], ["--name", secret], [f"--x={secret}"], ["-c", f"login('{secret}')"]):
        assert secret not in masked_command(["python", *arguments], ALICE)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tokenizer", "bert-base-uncased"],
        ["--tokeniser=gpt2"],
        ["--max-tokens", "512"],
        ["--tokens-per-batch=16k"],
        ["--lr", "1e-3"],
        ["--keywords", "a"],
        ["--author", "x"],
        ["monkey=3"],
    ],
)
def test_what_only_looks_like_a_secret_stays(arguments: list[str]) -> None:
    assert masked_command(["python", *arguments], ALICE) == " ".join(["python", *arguments])


def test_a_flag_without_value_does_not_hide_the_next_option() -> None:
    shown = masked_command(["run", "--use-auth-token", "--batch-size", "8"], ALICE)
    assert shown == "run --use-auth-token --batch-size 8"


def test_arguments_with_blanks_are_quoted_for_a_shell() -> None:
    assert masked_command(["run", "--note", "two words"], ALICE) == "run --note 'two words'"


def test_homes_users_and_hosts_are_taken_out() -> None:
    command = [
        "python",
        "/home/alice/jobs/train.py",
        "--out=/home/alice",
        "--data",
        "/scratch/alice/set",
        "/home/bob/x",
        "/Users/carol/y",
        "--master",
        "node-17.cluster:29500",
        "/home/alice2/z",
        "alice-net",
    ]
    assert masked_command(command, ALICE) == (
        "python ~/jobs/train.py --out=~ --data /scratch/<user>/set ~/x ~/y --master <host>:29500 ~/z alice-net"
    )


def test_a_home_elsewhere_and_a_short_host_name() -> None:
    person = Person(home="/data/people/dora", user="dora", host="train")
    assert masked_command(["train", "/data/people/dora/x"], person) == "train ~/x"


def test_a_person_of_whom_nothing_is_known() -> None:
    assert masked_command(["python", "/srv/x"], Person()) == "python /srv/x"
    assert masked_command(["python", "/x"], Person(home="/", user="root")) == "python /x"


def test_only_listed_variables_are_kept() -> None:
    kept = {
        "OMP_NUM_THREADS": "4",
        "MKL_NUM_THREADS": "2",
        "CUDA_VISIBLE_DEVICES": "1,0",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "PYTORCH_ALLOC_CONF": "x",
        "TORCH_LOGS": "recompiles",
        "NCCL_DEBUG": "INFO",
        "TOKENIZERS_PARALLELISM": "false",
        "SLURM_JOB_ID": "5",
        "KAGGLE_KERNEL_RUN_TYPE": "Batch",
    }
    dropped = {
        "HF_TOKEN": SECRET,
        "HUGGING_FACE_HUB_TOKEN": SECRET,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ACCESS_KEY_ID": SECRET,
        "KAGGLE_KEY": SECRET,
        "KAGGLE_USER_SECRETS_TOKEN": SECRET,
        "WANDB_API_KEY": SECRET,
        "TORCH_HUB_TOKEN": SECRET,
        "NCCL_SECRET": SECRET,
        "NCCL_COMM_ID": "10.0.0.7:1234",
        "SLURM_JOB_NODELIST": "node-17",
        "SLURMD_NODENAME": "node-17",
        "USER": "alice",
        "HOME": "/home/alice",
        "PATH": "/usr/bin",
        "MASTER_ADDR": "node-17",
    }
    assert allowed_variables({**kept, **dropped}, ALICE) == kept


def test_a_secret_or_a_home_inside_a_listed_variable_is_taken_out() -> None:
    found = allowed_variables(
        {"TORCH_HOME": "/home/alice/.cache/torch", "LD_PRELOAD": "hf_abcdefghijklmnopqrstuvwxyz"}, ALICE
    )
    assert found == {"TORCH_HOME": "~/.cache/torch", "LD_PRELOAD": "***"}


def test_a_listed_variable_that_is_set_to_nothing_stays() -> None:
    assert allowed_variables({"CUDA_VISIBLE_DEVICES": ""}, ALICE) == {"CUDA_VISIBLE_DEVICES": ""}


def test_folders_are_a_persons_own_and_switches_are_not() -> None:
    given = {"TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor_ada", "TORCHINDUCTOR_MAX_AUTOTUNE": "1"}
    assert allowed_variables(given, ALICE) == {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}
