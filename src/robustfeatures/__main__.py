"""`python -m robustfeatures`, which needs the package on the path but not installed."""

from robustfeatures.cli import main

main()
