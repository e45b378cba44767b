# From raw images to tables and figures. See README.md; `snakemake --cores all` builds the study of config.yaml.
from snakemake.utils import min_version

min_version("9.0")


include: "workflow/rules/common.smk"


# Builds all views of the study: tables, figures, claims and report.
rule all:
    input:
        [
            f"results/{name}"
            for views in VIEW_JOBS.values()
            for view in views
            for name in view.outputs
        ],
        references(view.artifact for views in VIEW_JOBS.values() for view in views),
        # Artifacts are targets too, so that a damaged payload is made again even if every table exists.
        references(TASKS),
    message:
        f"study {CONFIG.study}"


include: "workflow/rules/data.smk"
include: "workflow/rules/model.smk"
include: "workflow/rules/derived.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/measurement.smk"
include: "workflow/rules/views.smk"
