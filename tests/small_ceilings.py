"""Ceilings of little cost: what the machine can do at best takes a trial a second, and few tests are about that."""

from __future__ import annotations

#: For the module ``perf_diagnostics.trials.afterwards.ceilings``: copies of 4 MiB, and products for 4 ms.
SMALL = {"_COPY_BYTES": 4 * 2**20, "_PRODUCTS_NS": 4_000_000}
