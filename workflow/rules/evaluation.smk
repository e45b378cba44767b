for batch in PLAN.batches("evaluation", CONFIG.seeds_per_job):

    rule:
        """Measure networks on one split of one data set under one attack."""
        name:
            f"evaluation_{batch.name}"
        input:
            references(batch.inputs),
        output:
            references(batch.artifacts),
        log:
            f"results/logs/{batch.artifacts[0]}.log",
        benchmark:
            f"results/benchmarks/{batch.artifacts[0]}.tsv"
        conda:
            CONDA
        threads: CONFIG.threads_per_job
        resources:
            mem_mb=8000,
            runtime=720,
        shell:
            "python -m robustfeatures build {output:q} --threads {threads} --log {log:q}"
