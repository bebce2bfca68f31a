"""The RoCEv2 traffic generator: queue pairs in user space that look and behave like a NIC's on the wire.

The packets are made and judged by a C program (`build/roce/cwdp-roce`), one process a host. This package plans what
the processes do, runs them and puts their results together:

    flows = plan_flows(lab, "ring", message_bytes=65536)             # or Flow(...) by hand
    with Generator(flows, spawn=lab.popen, run_dir=lab.run_dir) as generator:
        generator.start(seconds=5)
        result = generator.result()                                  # what `cwdp lab traffic --json` prints

`plan_collective` plans ranks whose steps begin when their inputs have arrived, for `Generator(plan.flows, ..., ranks=plan.ranks)`.
docs/generator.md describes the packets and every field of the result.
"""
