"""What programs of NCCL and RCCL do: the plug-in that tells of it (`plugin/`), and what is made of that, without sockets."""
