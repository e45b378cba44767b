rule evaluation:
    """Measure one network on one split of one data set under one attack."""
    input:
        references("evaluation"),
    output:
        "results/artifacts/evaluation/{artifact}.json",
    log:
        "results/logs/evaluation/{artifact}.log",
    benchmark:
        "results/benchmarks/evaluation/{artifact}.tsv"
    threads: CONFIG.threads_per_job
    resources:
        mem_mb=4000,
        runtime=240,
    conda:
        "../../envs/gpu.yaml" if CONFIG.device == "cuda" else "../../envs/cpu.yaml"
    shell:
        "python -m robustfeatures build {output:q} --store {config[store]:q} --device {config[device]:q}"
        " --threads {threads} --log {log:q}"
