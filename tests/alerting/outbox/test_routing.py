"""Which incidents a receiver's route accepts."""

import pytest
from support.deliveries import incident

from querypulse.alerting.delivery import Route

BRONZE = Route(queries=("bronze*",))


@pytest.mark.parametrize(
    ("route", "one"),
    [
        (Route(), incident("a")),
        (Route(), incident("a", severity="warning")),
        (Route(severities=("warning",)), incident("a", severity="warning")),
        (BRONZE, incident("bronze_orders")),
        (BRONZE, incident("gold", "bronze_orders")),
        (BRONZE, incident("*")),
    ],
)
def test_route_accepts_matching_incidents(route, one):
    assert route.takes(one)


@pytest.mark.parametrize(
    ("route", "one"),
    [
        (Route(severities=()), incident("a")),
        (Route(severities=()), incident("*")),
        (Route(severities=("critical",)), incident("a", severity="warning")),
        (Route(severities=("warning",)), incident("*")),
        (BRONZE, incident("gold")),
        (BRONZE, incident("Bronze_orders")),
        (BRONZE, incident("x.bronze")),
        (Route(queries=()), incident("a")),
    ],
)
def test_route_rejects_other_incidents(route, one):
    assert not route.takes(one)
