rule derived:
    """Isolate robust or non-robust features: derive data sets with a trained network."""
    input:
        inputs_of("derived"),
        finished_parts("derived"),
    output:
        "results/artifacts/derived/{name}.json",
    log:
        "results/logs/derived/{name}.log",
    benchmark:
        "results/benchmarks/derived/{name}.tsv"
    conda:
        CONDA
    threads: CONFIG.threads_per_job
    resources:
        **resources_of("derived"),
    message:
        "derived {wildcards.name}"
    shell:
        BUILD


rule derived_part:
    """Make some blocks of a derived data set; other jobs make the others."""
    input:
        inputs_of("derived"),
    output:
        "results/artifacts/.parts/derived/{name}/{part}-of-{parts}.json",
    log:
        "results/logs/derived/{name}-{part}-of-{parts}.log",
    benchmark:
        "results/benchmarks/derived/{name}-{part}-of-{parts}.tsv"
    wildcard_constraints:
        part=r"\d+",
        parts=r"\d+",
    conda:
        CONDA
    threads: CONFIG.threads_per_job
    resources:
        **resources_of("derived", is_part=True),
    params:
        whole=lambda wildcards: str(ARTIFACTS.reference(f"derived/{wildcards.name}")),
    message:
        "derived {wildcards.name}, part {wildcards.part} of {wildcards.parts}"
    shell:
        BUILD_PART
