rule evaluation:
    """Evaluate networks on one split of one data set under attacks."""
    input:
        inputs_of("evaluation"),
        finished_parts("evaluation"),
    output:
        "results/artifacts/evaluation/{name}.json",
    log:
        "results/logs/evaluation/{name}.log",
    benchmark:
        "results/benchmarks/evaluation/{name}.tsv"
    conda:
        CONDA
    threads: CONFIG.threads_per_job
    resources:
        **resources_of("evaluation"),
    message:
        "evaluation {wildcards.name}"
    shell:
        BUILD


rule evaluation_part:
    """Evaluate networks on some of the images; other jobs do the others."""
    input:
        inputs_of("evaluation"),
    output:
        "results/artifacts/.parts/evaluation/{name}/{part}-of-{parts}.json",
    log:
        "results/logs/evaluation/{name}-{part}-of-{parts}.log",
    benchmark:
        "results/benchmarks/evaluation/{name}-{part}-of-{parts}.tsv"
    wildcard_constraints:
        part=r"\d+",
        parts=r"\d+",
    conda:
        CONDA
    threads: CONFIG.threads_per_job
    resources:
        **resources_of("evaluation", is_part=True),
    params:
        whole=lambda wildcards: str(ARTIFACTS.reference(f"evaluation/{wildcards.name}")),
    message:
        "evaluation {wildcards.name}, part {wildcards.part} of {wildcards.parts}"
    shell:
        BUILD_PART
