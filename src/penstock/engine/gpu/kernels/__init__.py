"""Triton kernels and the functions that launch them: tensors in, tensors out.

No kernel is tuned at run time: the configurations stand beside the kernels, as measured. Nothing here waits
for the device, allocates on it behind a caller's back in a captured step, or knows of the model around it.
"""
