rule derived:
    """Isolate robust or non-robust features: derive data sets with a trained network."""
    input:
        inputs("derived"),
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
        **asks("derived"),
    shell:
        "python -m robustfeatures build {output:q} --threads {threads} --log {log:q}"


rule derived_part:
    """Make some blocks of a derived data set; other jobs make the others."""
    input:
        inputs("derived"),
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
        **asks("derived"),
    params:
        whole="results/artifacts/derived/{name}.json",
    shell:
        "python -m robustfeatures build {params.whole:q} --part {wildcards.part} --parts {wildcards.parts}"
        " --threads {threads} --log {log:q}"
