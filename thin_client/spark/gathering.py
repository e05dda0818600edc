"""Vectorized reads of a buffer: numbers as numpy arrays, texts as Arrow arrays. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from broker_core.remoting.message import Bytes


def gather(data: Bytes, kind: str, at: np.ndarray) -> np.ndarray:
    """Return the field of type *kind* at each position; arbitrary for positions outside *data*."""
    last = len(data) - np.dtype(kind).itemsize
    if last < 0:
        return np.zeros(len(at), kind)
    everywhere = np.ndarray((last + 1,), kind, buffer=data, strides=(1,))
    return everywhere[np.clip(at, 0, last)]


def cut(data: Bytes, starts: np.ndarray, ends: np.ndarray) -> pa.Array:
    """Return the bytes from each start to its end, as binary; ascending, without overlaps."""
    bounds = np.zeros(2 * len(starts) + 1, np.int32)
    bounds[1::2] = starts
    bounds[2::2] = ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    parts = pa.Array.from_buffers(pa.binary(), 2 * len(starts), buffers)
    return parts.take(indices(np.arange(1, 2 * len(starts), 2)))


def strings(bounds: np.ndarray, raw: np.ndarray) -> pa.Array:
    """Return the strings of *raw*, which is UTF-8, between consecutive *bounds*."""
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(raw)]
    return pa.Array.from_buffers(pa.string(), len(bounds) - 1, buffers)


def indices(at: np.ndarray, missing: np.ndarray | None = None) -> pa.Array:
    """Return indices for Arrow's ``take``, which returns null where *missing* is true."""
    return pa.array(at, pa.int64(), mask=missing)


def flat(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the array's bytes, concatenated, and the end of each entry."""
    _, offsets, values = texts.buffers()
    ends = np.frombuffer(offsets, np.int32, len(texts) + 1)[1:]
    size = int(ends[-1]) if len(ends) else 0
    raw = np.frombuffer(values, np.uint8, size) if size else np.zeros(0, np.uint8)
    return raw, ends
