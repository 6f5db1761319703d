"""Grafana dashboards, generated: what each shows is a file of its own, `build.py` makes Grafana's JSON of it.

Building needs grafana-foundation-sdk, which nothing that serves does. Knows the catalogue's names, never a
running server.
"""
