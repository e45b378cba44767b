"""`python -m robustfeatures`, which works without installation if the package is on the path."""

from robustfeatures.cli import main

main()
