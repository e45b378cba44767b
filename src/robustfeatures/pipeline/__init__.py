"""Study files, plan, store, jobs and pages. The science imports nothing from here."""
