# What a network learned: from raw images to tables and figures. See README.md; `snakemake --cores all` builds config.yaml's study.
from snakemake.utils import min_version

min_version("9.0")


include: "workflow/rules/common.smk"


# Everything that the study shows: its tables, figures, claims and report.
rule all:
    default_target: True
    input:
        [f"results/{name}" for view in VIEWS for name in view.outputs],
        references(view.artifact for view in VIEWS),
        # Also where every table is there already, so that a payload that was damaged is made again.
        references(TASKS),


include: "workflow/rules/data.smk"
include: "workflow/rules/model.smk"
include: "workflow/rules/derived.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/measurement.smk"
include: "workflow/rules/views.smk"
