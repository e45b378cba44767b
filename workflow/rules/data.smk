for batch in PLAN.batches("data", CONFIG.seeds_per_job):

    rule:
        """Raw images into the canonical form: uint8, split once and for all into train, validation and test."""
        name:
            f"data_{batch.name}"
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
            runtime=240,
        shell:
            "python -m robustfeatures build {output:q} --threads {threads} --log {log:q}"
