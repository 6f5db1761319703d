"""The device's own ways of doing the expensive things: one name, one signature, several devices.

Every function here has a plain torch form that runs anywhere and is the reference for
the others. Nothing here knows of requests; block numbers and positions come as tensors.
"""
