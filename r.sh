#!/bin/bash
# tests of this worktree
cd /work/w-me; OMP_NUM_THREADS=1 PYTHONPATH=/work/w-me /work/main/.venv/bin/python -m pytest -q -x -n 0 "$@"
