"""`python -m systems.reports.web`: serve the API of the reports, configured from the environment."""

from __future__ import annotations

import sys
from typing import Any

from systems.common.serving import serve_site


def _make() -> Any:
    from systems.reports.app import reports
    from systems.reports.web.site import make_site

    return make_site(reports)


if __name__ == "__main__":
    sys.exit(serve_site("python -m systems.reports.web", __doc__, _make))
