"""RoCEv2-shaped traffic that fills a lab to a share of its rate."""
