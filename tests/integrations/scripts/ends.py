"""Ends as its argument says."""

import atexit
import os
import signal
import sys
import time

import torch
from common import Net, loader

how = sys.argv[1]
torch.manual_seed(1)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
atexit.register(lambda: print("the script's own last words", flush=True))


def train() -> None:
    step = 0
    while True:
        for x, y in loader():
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            step += 1
            if how == "shape" and step == 5:
                model(torch.randn(4, 9))
            if how == "exit" and step == 5:
                sys.exit(3)
            if how == "words" and step == 5:
                sys.exit("enough")
            if how == "ctrl-c" and step == 5:
                os.kill(os.getpid(), signal.SIGINT)
            if how == "forever":
                time.sleep(0.01)
            if step == 2000 or (how == "normal" and step == 30):
                return


if how == "no-training":
    print("nothing to train")
else:
    train()
