"""Randomness is addressed, not consumed.

Every draw comes from a generator keyed by (seed, purpose, where). So what a replica draws depends on its own seed only,
not on the others in its stack; a resumed run needs no generator state; and changing one part does not shift another's
draws.
"""

from hashlib import blake2b

import torch


def generator(seed: int, purpose: str, *where: int, device: torch.device | str = "cpu") -> torch.Generator:
    """The generator for one purpose of one seed, for example `generator(seed, "batches", task)`.

    On the CPU PyTorch uses 32 bits of the number, so two addresses in billions share a stream.
    """
    digest = blake2b(repr((int(seed), purpose, *map(int, where))).encode(), digest_size=8).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest, "little", signed=True))
