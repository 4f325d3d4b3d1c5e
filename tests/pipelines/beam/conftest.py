from collections.abc import Iterator

import pytest

from pipelines.beam import runner


@pytest.fixture(scope="module", autouse=True)
def every_job_by_beam() -> Iterator[None]:
    """Small jobs, which most tests run, would do without Beam."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "needs_beam", lambda _num_shards, _options: True)
        yield
