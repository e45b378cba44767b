rule model:
    """Train networks, in the standard way or adversarially, on original or derived data sets."""
    input:
        inputs_of("model"),
    output:
        "results/artifacts/model/{name}.json",
    log:
        "results/logs/model/{name}.log",
    benchmark:
        "results/benchmarks/model/{name}.tsv"
    conda:
        CONDA
    threads: threads_of("model")
    resources:
        **resources_of("model"),
    message:
        "model {wildcards.name}"
    shell:
        BUILD
