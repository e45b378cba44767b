rule data:
    """Convert raw images to uint8 and split them into train, validation and test."""
    input:
        inputs_of("data"),
    output:
        "results/artifacts/data/{name}.json",
    log:
        "results/logs/data/{name}.log",
    benchmark:
        "results/benchmarks/data/{name}.tsv"
    conda:
        CONDA
    threads: CONFIG.threads_per_job
    resources:
        **resources_of("data"),
    message:
        "data {wildcards.name}"
    shell:
        BUILD
