rule measurement:
    """Measure anything except accuracies: the papers' toy models, transfer, gradients, weights."""
    input:
        inputs_of("measurement"),
    output:
        "results/artifacts/measurement/{name}.json",
    log:
        "results/logs/measurement/{name}.log",
    benchmark:
        "results/benchmarks/measurement/{name}.tsv"
    conda:
        CONDA
    threads: CONFIG.threads_per_job
    resources:
        **resources_of("measurement"),
    message:
        "measurement {wildcards.name}"
    shell:
        BUILD
