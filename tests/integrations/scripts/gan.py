"""Two optimizers take turns; the second one's step ends the loop's."""

import torch
from common import Net, PausedSGD, border, fingerprint, loader, measured, pause, write_ledger

torch.manual_seed(1)
batches = loader(0.001)
judge, forger = Net(0.002, 0.003), Net(0.004, 0.002, outputs=8)
of_judge, of_forger = PausedSGD(judge.parameters(), lr=0.01), PausedSGD(forger.parameters(), lr=0.01)
with measured([judge, forger], [of_judge, of_forger], batches):
    for x, _ in batches:
        real = judge(x).mean()
        with torch.no_grad():
            forger(torch.randn(4, 8))  # looked at, not trained on
        fake = forger(torch.randn(4, 8))
        of_judge.zero_grad()
        (judge(fake.detach()).mean() - real).backward()
        of_judge.step()
        of_forger.zero_grad()
        (-judge(fake).mean()).backward()
        of_forger.step()
        border()
        pause("other", 0.004)
fingerprint(judge, forger)
write_ledger()
