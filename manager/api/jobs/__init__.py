"""What is asked of jobs: `/v1/trace`, `/v1/job-series`, and their metrics."""
