"""Speed, measured side by side in one run: `python -m tests.benchmarks`. No part of the test run."""
