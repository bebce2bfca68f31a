"""An incast packet by packet, under several laws of congestion control."""
