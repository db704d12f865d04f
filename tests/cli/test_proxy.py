from __future__ import annotations

import pytest
from click.testing import CliRunner

from foldline.cli.main import cli

pytest.importorskip("aiohttp")


@pytest.mark.parametrize("upstream", ["example", "ftp://example.org", "http://name:secret@example.org"])
def test_an_upstream_that_is_no_address_is_an_error_of_its_option(upstream: str) -> None:
    result = CliRunner().invoke(cli, ["proxy", "--upstream", upstream, "--no-store", "--port", "0"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("foldline: --upstream: must ")
    assert "secret" not in result.stderr
