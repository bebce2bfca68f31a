"""What is on the bus for each pod, and what for the whole fleet: pods share a bus, and each has leaders of its own.

What belongs to the pod that a fleet has unless it is divided bears no pod's name.
"""

from manager.identity.authority import DEFAULT_POD


def bucket_of(bucket: str, pod: str) -> str:
    """The name of a pod's own bucket, or stream."""
    return bucket if pod == DEFAULT_POD else f"{bucket}-{pod}"


def key_of(key: str, pod: str) -> str:
    """Under which something of a pod's lies in a bucket that all pods share."""
    return key if pod == DEFAULT_POD else f"{pod}.{key}"


def subject_of(subject: str, pod: str) -> str:
    """On which something is said of a pod."""
    return subject if pod == DEFAULT_POD else f"{subject}.{pod}"
