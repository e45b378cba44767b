rule model:
    """Train one network, in the standard way or adversarially, on an original or a derived data set."""
    input:
        references("model"),
    output:
        "results/artifacts/model/{artifact}.json",
    log:
        "results/logs/model/{artifact}.log",
    benchmark:
        "results/benchmarks/model/{artifact}.tsv"
    threads: CONFIG.threads_per_job
    resources:
        mem_mb=4000,
        runtime=720,
    conda:
        "../../envs/gpu.yaml" if CONFIG.device == "cuda" else "../../envs/cpu.yaml"
    shell:
        "python -m robustfeatures build {output:q} --store {config[store]:q} --device {config[device]:q}"
        " --threads {threads} --log {log:q}"
