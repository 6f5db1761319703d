"""What `benchmarks/gpu.py` is made of. Needs torch and this project's engine, nothing else."""
