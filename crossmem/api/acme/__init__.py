"""The Acme billing domain: charges and refunds that policy judges and Stripe carries out."""

from __future__ import annotations

from crossmem.api.acme.routes import routes
from crossmem.api.acme.rules import SPECS
from crossmem.api.domain import ApiDomain

DOMAIN = ApiDomain(title="Acme billing", tables=SPECS, routes=routes, takes_payments=True)
