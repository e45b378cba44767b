rule data:
    """Raw images into the canonical form: uint8, split once and for all into train, validation and test."""
    input:
        references("data"),
    output:
        "results/artifacts/data/{artifact}.json",
    log:
        "results/logs/data/{artifact}.log",
    benchmark:
        "results/benchmarks/data/{artifact}.tsv"
    threads: CONFIG.threads_per_job
    resources:
        mem_mb=2000,
        runtime=30,
    conda:
        "../../envs/gpu.yaml" if CONFIG.device == "cuda" else "../../envs/cpu.yaml"
    shell:
        "python -m robustfeatures build {output:q} --store {config[store]:q} --device {config[device]:q}"
        " --threads {threads} --log {log:q}"
