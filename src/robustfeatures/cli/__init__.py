"""The command line: the jobs of the workflow, and commands for people."""

# Each module adds its commands to the app.
from robustfeatures.cli import jobs as jobs
from robustfeatures.cli import keeping as keeping
from robustfeatures.cli import looking as looking
from robustfeatures.cli import sharing as sharing
from robustfeatures.cli.app import app as app
from robustfeatures.cli.run import main as main
