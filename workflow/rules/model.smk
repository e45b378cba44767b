rule model:
    """Train networks, in the standard way or adversarially, on original or derived data sets."""
    input:
        inputs("model"),
    output:
        "results/artifacts/model/{name}.json",
    log:
        "results/logs/model/{name}.log",
    benchmark:
        "results/benchmarks/model/{name}.tsv"
    conda:
        CONDA
    threads: CONFIG.threads_per_job
    resources:
        **asks("model"),
    shell:
        "python -m robustfeatures build {output:q} --threads {threads} --log {log:q}"
