"""How large a step may be on a device that ran out of memory."""

from __future__ import annotations

LEAST_TOKENS = 256  # of a step's budget: smaller ones save no memory worth having
GOOD_STEPS = 1000  # after which a little more is tried


class StepSize:
    """The configured limits, less what the device had no memory for. It grows back slowly."""

    def __init__(self, max_tokens: int, max_sequences: int) -> None:
        self.tokens = self._max_tokens = max_tokens
        self.sequences = self._max_sequences = max_sequences
        self.overlaps = True  # a step may be launched while the device computes the one before
        self._least_tokens = min(max_tokens, max(max_sequences, LEAST_TOKENS))
        self._good = 0

    def shrink(self, tokens: int, sequences: int, *, overlapped: bool, others: int) -> bool:
        """A step of this size was too large; false where no smaller one exists.

        Prompts are cut first. Where there are none, or only what a least step would take anyway, fewer
        sequences run at once. A single one may have lacked what another step in flight with it took
        (`overlapped`), then what the `others` that run hold.
        """
        self._good = 0
        if tokens > sequences and tokens > self._least_tokens:
            self.tokens = max(self._least_tokens, tokens // 2)
        elif sequences > 1:
            self.sequences = sequences // 2
        elif overlapped:
            self.overlaps = False
        elif others:
            self.sequences = 1
        else:
            return False
        return True

    def good_step(self) -> None:
        """A step went well: enough of them, and the next may be larger."""
        if self.overlaps and self.tokens == self._max_tokens and self.sequences == self._max_sequences:
            return
        self._good += 1
        if self._good == GOOD_STEPS:
            self._good = 0
            self.overlaps = True
            self.tokens = min(2 * self.tokens, self._max_tokens)
            self.sequences = min(2 * self.sequences, self._max_sequences)
