"""When the steps of a training are written down: soon for the first time, then so rarely that it costs nothing."""

from __future__ import annotations

#: The warm-up is written when it is over, so that making the run and importing what writes it disturbs no step that
#: counts, and a training that is killed soon leaves something. The next piece follows after a second; then writing,
#: which on a device synchronises, happens so rarely that it costs less than a thousandth. A kill costs at most this
#: long, or a hundredth of a long training, which keeps the files of a night few.
FIRST_FLUSH_NS = 1_000_000_000
FLUSH_NS = 5_000_000_000
FLUSH_SHARE = 100

#: A block has at most so many steps, whatever their length: some 13 MB of marks and rows.
MOST_STEPS_A_BLOCK = 65_536


class FlushTimes:
    """The time, or the number of steps, at which something is due at the end of a step."""

    def __init__(self) -> None:
        #: What comes first of these: host clock in ns, and steps so far.
        self.at_ns = self.at_step = 0
        self._full_at_step = MOST_STEPS_A_BLOCK
        self._began_ns = 0

    def training_began(self, at_ns: int) -> None:
        """Shares of the training are counted from then on."""
        self._began_ns = at_ns

    def measuring_begins(self) -> None:
        """The warm-up is over."""
        self.at_ns = self._began_ns + FIRST_FLUSH_NS

    def block_closed(self, steps: int) -> None:
        """After so many steps a new block begins."""
        self._full_at_step = steps + MOST_STEPS_A_BLOCK

    def is_due(self, now: int, steps: int) -> bool:
        """Whether it is time to write, and not just to look around."""
        return now >= self.at_ns or steps >= self._full_at_step

    def written(self, now: int) -> None:
        """The next time comes when writing costs less than a hundredth of what was trained."""
        self.at_ns = now + max(FLUSH_NS, (now - self._began_ns) // FLUSH_SHARE)

    def wait(self, steps: int, look_at_step: int | None) -> None:
        """The next look is due when the block is full or, before that, at this step."""
        look = self._full_at_step if look_at_step is None else look_at_step
        self.at_step = max(steps + 1, min(look, self._full_at_step))

    def quiet_until_ns(self, steps: int) -> int:
        """Until then nothing is due after so many steps, however many more there are; 0 where it is due soon."""
        return 0 if self.at_step - steps < MOST_STEPS_A_BLOCK // 16 else self.at_ns

    def never(self) -> None:
        """Nothing will be due."""
        self.at_ns = self.at_step = 2**62
