"""Workloads, load generators and reports: the same figures for our engine and for any server.

`offline` drives the engine in this process, `online` drives any OpenAI-compatible address.
Every report says on which machine, beside which ceilings, by which command. Knows no terminal.
"""
