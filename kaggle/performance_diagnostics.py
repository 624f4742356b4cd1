# %% [markdown]
# # Why is my training slow?
#
# Measures a model over batch sizes, on the CPU and on every usable GPU of this session, says where a step's time goes
# and what a change would win, and writes figures and report into the session's output folder. Put your own model and
# loader into the cell that makes `model` and `train_loader`.

# %%
# With internet off, attach the dataset that `make kaggle-dataset` makes; it is found wherever it is mounted.
import importlib.util
import subprocess
import sys
from pathlib import Path

if importlib.util.find_spec("perf_diagnostics") is None:
    wheel = next(Path("/kaggle/input").rglob("perf_diagnostics-*.whl"), None)
    offline = [] if wheel is None else ["--no-index", f"--find-links={wheel.parent}"]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *offline, "perf-diagnostics"], check=True)

# %%
# What this session really has: a GPU that torch lists may have no kernels in this build, and the accelerator asked
# for may have been replaced by another.
from perf_diagnostics.measure.boards.devices import list_devices

for device in list_devices():
    print(f"{device.name:8} {device.model:40} {'usable' if device.usable else 'left out: ' + device.why_not}")

# %%
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(32, 64, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(64, 10),
)
images = TensorDataset(torch.randn(2048, 3, 32, 32), torch.randint(0, 10, (2048,)))
train_loader = DataLoader(images, batch_size=32, shuffle=True)

# %%
from perf_diagnostics import analyze_gpu_utilization, run_kaggle_analysis

profiler = run_kaggle_analysis(
    model, train_loader, batch_sizes=[8, 16, 32, 64, 128], num_iterations=20, time_budget_s=300
)
profiler.get_results()

# %%
# The verdict, the evidence behind it, and what to try.
profiler.generate_bottleneck_report()

# %%
# What the GPUs are doing right now; run it beside a training.
analyze_gpu_utilization(seconds=2)
