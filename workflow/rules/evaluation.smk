rule evaluation:
    """Evaluate networks on one split of one data set under attacks."""
    input:
        inputs("evaluation"),
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
        **asks("evaluation"),
    shell:
        "python -m robustfeatures build {output:q} --threads {threads} --log {log:q}"


rule evaluation_part:
    """Evaluate networks on some of the images; other jobs do the others."""
    input:
        inputs("evaluation"),
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
        **asks("evaluation"),
    params:
        whole="results/artifacts/evaluation/{name}.json",
    shell:
        "python -m robustfeatures build {params.whole:q} --part {wildcards.part} --parts {wildcards.parts}"
        " --threads {threads} --log {log:q}"
