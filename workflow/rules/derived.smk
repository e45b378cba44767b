rule derived:
    """Isolate robust or non-robust features: make one derived data set with a trained network."""
    input:
        references("derived"),
    output:
        "results/artifacts/derived/{artifact}.json",
    log:
        "results/logs/derived/{artifact}.log",
    benchmark:
        "results/benchmarks/derived/{artifact}.tsv"
    threads: CONFIG.threads_per_job
    resources:
        mem_mb=4000,
        runtime=720,
    conda:
        "../../envs/gpu.yaml" if CONFIG.device == "cuda" else "../../envs/cpu.yaml"
    shell:
        "python -m robustfeatures build {output:q} --store {config[store]:q} --device {config[device]:q}"
        " --threads {threads} --log {log:q}"
