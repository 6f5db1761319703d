"""The device side of a step: slots, input building, forward, sampling.

Carries out the scheduler's plan and hands tokens back; decides nothing. The host
tells it what changed, everything else it needs for a step is on the device already.
"""
