# %% [markdown]
# # Why is my training slow?
#
# Measures a model over batch sizes, on the CPU and on every usable GPU of this session, says where a step's time goes,
# and writes figures and report into the session's output folder. Put your own model and loader into the second cell.

# %%
# With internet off, attach a dataset that holds the wheels and install from it instead:
#   !pip install --no-index --find-links=$(dirname $(find /kaggle/input -name 'perf_diagnostics*.whl')) perf-diagnostics
import torch
from torch.utils.data import DataLoader, TensorDataset

from perf_diagnostics import analyze_gpu_utilization, run_kaggle_analysis

# %%
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
profiler = run_kaggle_analysis(model, train_loader, batch_sizes=[8, 16, 32, 64, 128], num_iterations=20)
profiler.get_results()

# %%
# The verdict, the evidence behind it, and what to try.
profiler.generate_bottleneck_report()

# %%
# What the GPUs are doing right now; run it beside a training.
analyze_gpu_utilization(seconds=2)
