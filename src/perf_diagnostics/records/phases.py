"""Where the wall time of a step goes."""

from __future__ import annotations

import enum


class Phase(enum.StrEnum):
    """Where the wall time of one training step goes, from the end of the step before it.

    ::

        for batch in batches:              # data_wait: the host waits in next(batches), epoch restarts included
            batch = batch.to(device)       # transfer:  host-to-device copies
            loss = loss_fn(model(x), y)    # forward:   model and loss
            loss.backward()                # backward:  gradients (and what is hooked into them)
            optimizer.step()               # optimizer: unscale, clip, step, scheduler, zero_grad
            log(loss)                      # other:     all that remains of the step's wall time

    With gradient accumulation one step is several passes through the loop and its phases add up.
    The five measured phases and ``other`` equal the step's wall time by construction.
    """

    DATA_WAIT = "data_wait"
    TRANSFER = "transfer"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    OTHER = "other"


MEASURED_PHASES: tuple[Phase, ...] = tuple(phase for phase in Phase if phase is not Phase.OTHER)
ALL_PHASES: tuple[Phase, ...] = tuple(Phase)
