"""The picture in README.md: what a link that goes silent costs, with cwdp and without it, recorded in a lab and drawn."""
