"""An HTTPS address is checked against this machine's certificates; a plain one gets none."""

from __future__ import annotations

import ssl

import pytest

from systems.common.tls import trust_for


@pytest.mark.parametrize("url", ["https://model.example/v1", "HTTPS://model.example"])
def test_a_service_behind_tls_is_known_by_the_certificates_of_this_machine(url: str) -> None:
    assert trust_for(url) is True


def test_a_plain_service_that_leads_to_tls_is_not_believed() -> None:
    trusted = trust_for("http://127.0.0.1:8090/https:")
    assert isinstance(trusted, ssl.SSLContext)
    assert trusted.verify_mode is ssl.CERT_REQUIRED
    assert trusted.check_hostname
    assert trusted.cert_store_stats()["x509_ca"] == 0
