"""The judgement over one replica."""

from __future__ import annotations

from typing import Literal

from penstock.gateway.health.errors import ErrorRate
from penstock.gateway.health.limits import HealthLimits

State = Literal["starting", "healthy", "unhealthy", "dead"]
NEVER = float("-inf")


class Health:
    """Told what happens to a replica, it says whether that replica should get requests.

    *Alive*: the process or server is there. *Ready*: it has produced something since it started. *Healthy*:
    ready, and nothing speaks against it: an engine's loop goes round, a probe is answered, few answers
    fail, the device reports no fault. Work that comes through is as good as a probe: a busy replica is
    never probed for want of a sign, and never blamed for a probe that had to wait behind its work.

    `now` is in monotonic seconds. Whoever watches the replica asks `wants_probe` about twice a second,
    reports each probe by `probing` and `probed`, and calls `excuse` if it was itself held up.
    """

    def __init__(self, limits: HealthLimits, now: float) -> None:
        self._limits = limits
        self._errors = ErrorRate(limits.error_window)
        self._dead: str | None = None
        # What cannot be probed is believed until its answers say otherwise.
        self._ready = limits.probe_every is None
        self._out: str | None = None  # why it is unhealthy
        self._only_a_probe = False  # what runs on may be wrong: a token is no proof, a new probe is
        self._strikes = 0  # times it went out without a calm while between
        self._out_until = NEVER  # not back before
        self._back = NEVER  # when it last became healthy
        self._beat = now
        self._token = NEVER
        self._probe_began: float | None = None
        self._probe_counts = False  # whether the probe under way began after the trouble did
        self._missed = False  # a probe ran out of time while work came through, and none was answered since
        self._asked = NEVER  # when the last probe began
        self._proof = NEVER  # when a probe last succeeded
        self._doubt = False

    # ------------------------------------------------------------ what is seen

    def beat(self, now: float) -> None:
        """The engine's loop went round."""
        self._beat = max(self._beat, now)

    def token(self, now: float) -> None:
        """Work came through: a token, a vector, a part of a prompt, bytes of an answer."""
        self._token = now
        self._doubt = False
        if not self._ready:
            if self._dead is None:
                self._ready, self._back = True, now
        elif self._out is not None and not self._only_a_probe:
            self._come_back(now)

    def answered(self, ok: bool, now: float) -> None:
        """An answer ended. Failures are the replica's own: no bad requests, no clients that left."""
        self._errors.add(ok, now)
        if ok or self._out is not None or self._dead is not None:
            return
        self._doubt = True
        failed, answers = self._errors.failed(now)
        if answers >= self._limits.error_requests and failed > self._limits.error_rate * answers:
            self._go_out(f"{failed} of its last {answers} answers failed", now, only_a_probe=True, held=True)

    def probing(self, now: float) -> None:
        """A probe begins."""
        self._probe_began = self._asked = now
        self._probe_counts = True

    def probed(self, ok: bool, now: float, reason: str | None = None) -> None:
        """A probe ended. With a `reason` the replica itself says that it should get no requests."""
        began, self._probe_began = self._probe_began, None
        if began is None:
            return  # it was asked of a process that is gone
        if ok:
            if self._probe_counts:
                self._proven(now)
        elif reason is not None:
            self._go_out(reason, now, only_a_probe=True)
        elif self._token <= began:
            self._go_out("it did not answer a probe", now)
        else:
            self._missed = True  # excused as long as more comes through

    def fault(self, reason: str, now: float) -> None:
        """The device or the replica reports a fault: nothing counts until a new probe succeeds."""
        self._go_out(reason, now, only_a_probe=True)

    def died(self, reason: str, now: float) -> None:
        """The process ended, or the server refuses connections."""
        # Requests that fail because it dies may be heard of first: that is one trouble, not two.
        if self._dead is None and self._ready and self._out is None:
            self._strike(now)
        self._dead = reason
        self._out, self._only_a_probe, self._ready = None, False, False
        self._probe_began, self._missed = None, False
        self._errors.clear()

    def revived(self, now: float) -> None:
        """There is a new process in its place; it is ready once it has produced something."""
        self._dead, self._out, self._only_a_probe = None, None, False
        self._ready = self._limits.probe_every is None
        self._beat = now
        self._out_until = NEVER  # whoever starts processes has its own pauses
        self._doubt, self._probe_began = False, None
        self._errors.clear()

    def excuse(self, seconds: float) -> None:
        """The watcher stood still for so long: that much of the silence is its own."""
        self._beat += seconds
        self._token += seconds
        if self._probe_began is not None:
            self._probe_began += seconds

    # ------------------------------------------------------------ what follows

    @property
    def alive(self) -> bool:
        return self._dead is None

    @property
    def ready(self) -> bool:
        return self._ready and self._dead is None

    def state(self, now: float) -> State:
        self._judge(now)
        if self._dead is not None:
            return "dead"
        if not self._ready:
            return "starting"
        return "healthy" if self._out is None else "unhealthy"

    def reason(self, now: float) -> str | None:
        """Why it is not healthy, as the end of a sentence; None when it is."""
        self._judge(now)
        if self._dead is not None:
            return self._dead
        if not self._ready:
            return self._out or "it has not answered yet"
        return self._out

    def wants_probe(self, now: float) -> bool:
        """Whether to probe it now: it has shown nothing for a while, or there is doubt."""
        self._judge(now)
        limits = self._limits
        if limits.probe_every is None or self._probe_began is not None:
            return False
        # A loop that stands still answers nothing, and says by itself when it goes on; a process
        # that is gone is for its owner to start again. Only a server is asked whether it is there.
        if limits.silence is not None and (self._dead is not None or now - self._beat > limits.silence):
            return False
        troubled = self._dead is not None or self._out is not None or not self._ready
        if troubled or self._doubt or self._missed:
            return now - self._asked >= limits.doubt_every
        return now - max(self._asked, self._token, self._proof) >= limits.probe_every

    # ------------------------------------------------------------ judging

    def _judge(self, now: float) -> None:
        limits = self._limits
        if limits.probe_every is None:
            # Nobody can ask it: after its time out it is tried with requests.
            if (self._dead is not None or self._out is not None) and now >= self._out_until:
                self._proven(now)
            return
        if self._out is not None or self._dead is not None:
            return
        if limits.silence is not None and self._ready and now - self._beat > limits.silence:
            self._go_out(f"it has shown no progress for {now - self._beat:.1f} s", now)
        began = self._probe_began
        if began is not None or self._missed:
            since = self._token if began is None or self._missed else max(began, self._token)
            if now - since > limits.probe_timeout:
                self._go_out(f"it has not answered a probe for {now - since:.1f} s", now)

    def _proven(self, now: float) -> None:
        """A probe that began after the trouble succeeded."""
        self._proof = now
        self._doubt = self._missed = False
        if self._dead is None and self._out is None:
            if not self._ready:
                self._ready, self._back = True, now
            return
        self._come_back(now)

    def _come_back(self, now: float) -> None:
        if now < self._out_until:
            return
        self._dead, self._out, self._only_a_probe = None, None, False
        self._ready = True
        self._back = now
        self._errors.clear()

    def _go_out(self, reason: str, now: float, *, only_a_probe: bool = False, held: bool = False) -> None:
        """`only_a_probe`: work that still comes through proves nothing, nor does a probe under way."""
        if only_a_probe:
            self._probe_counts = False
        if self._dead is not None:
            return
        if self._out is None and self._ready:
            self._strike(now, held=held)
        self._out, self._missed = reason, False
        self._only_a_probe = self._only_a_probe or only_a_probe

    def _strike(self, now: float, *, held: bool = False) -> None:
        """Back at once after the first time, unless `held`; who comes and goes stays out ever longer."""
        limits = self._limits
        if now - self._back >= limits.calm:
            self._strikes = 0
        self._strikes += 1
        # What cannot be probed comes back by time alone, so it takes some from the first time on.
        doublings = self._strikes - 2 + (held or limits.probe_every is None)
        pause = min(limits.hold * 2.0**doublings, limits.max_hold) if doublings >= 0 else 0.0
        self._out_until = now + pause
