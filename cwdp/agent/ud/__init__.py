"""Probes by UD queue pairs, where the hardware takes RoCEv2 packets before XDP could see them."""
