"""Certificates are read where they are needed, and nobody is trusted where they are not."""

from __future__ import annotations

import ssl

import pytest

from systems.common.calling import certificates


@pytest.mark.parametrize("url", ["https://model.example/v1", "HTTPS://model.example"])
def test_a_service_behind_tls_is_known_by_the_certificates_of_this_machine(url: str) -> None:
    assert certificates(url) is True


def test_a_plain_service_that_leads_to_tls_is_not_believed() -> None:
    trusted = certificates("http://127.0.0.1:8090/https:")
    assert isinstance(trusted, ssl.SSLContext)
    assert trusted.verify_mode is ssl.CERT_REQUIRED
    assert trusted.check_hostname
    assert trusted.cert_store_stats()["x509_ca"] == 0
