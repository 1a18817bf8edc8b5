"""The Acme domain: keys, lessons, places, application, judgement, companions; its streams' facts."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import suggestion_of

from crossmem import streams
from crossmem.api import tables_of
from crossmem.contract import DictDiff, Json, Response, Suggestion, read_response
from crossmem.domains import domain
from crossmem.domains.acme import CSM_PLANS
from crossmem.domains.base import PROVISIONED, Body, Task, merged
from crossmem.harness.table_files import LiveTable, difference, read_table
from crossmem.memory.arms import ARMS
from crossmem.memory.entry import Entry
from crossmem.memory.events import DiffsHanded, Observation
from crossmem.memory.memory import Memory
from crossmem.streams.plan import Plan
from crossmem.streams.plans.acme import PLANS

ACME = domain("acme")
TABLES = {path.stem: read_table(path) for path in sorted(tables_of("acme").glob("*.json"))}
SNAPSHOTS = sorted(tables_of("acme").glob("active_csm_codes.snapshots/*.json"))
CODES = {str(code) for path in SNAPSHOTS for code in read_table(path).rows.values()}
"""Every csm code that is ever in force."""

PROMO, CSM, FUNDING = "promo_eligibility", "active_csm_codes", "funding_policy"
ENTERPRISE, REFUND = "enterprise_policy", "refund_policy"


def charge(**changes: Json) -> Task:
    body = {
        "customer": "cus_1",
        "plan_id": "growth",
        "tier": "team",
        "billing_interval": "monthly",
        "seats": 8,
        "amount": 12900,
        "currency": "usd",
        "payment_method": "pm_card_visa",
        "promo_codes": [],
    }
    return Task(id="t", description="", input={**body, **changes})


def refund(**changes: Json) -> Task:
    body = {"payment_intent": "pi_1", "amount": 100, "reason": "changed_mind", "days_since_charge": 3}
    return Task(id="t", description="", input={**body, **changes})


def suggested(
    field: str, value: Json, table: str | None = None, *, cacheable: bool = True
) -> dict[str, Json]:
    return {
        "action": "MODIFY_PARAMS",
        "parameters": {"field": field, "suggested_value": value},
        "table": table,
        "cache_hint": {"cacheable": cacheable},
    }


def fix(field: str, value: Json, table: str | None = None, *, cacheable: bool = True) -> Suggestion:
    return suggestion_of(suggested(field, value, table, cacheable=cacheable))


def answer(*fixes: dict[str, Json], **stamps: str) -> Response:
    """A refusal with `fixes`, or an acceptance where there are none."""
    body: dict[str, Json] = {"table_versions": stamps}
    if fixes:
        body["recovery_feedback"] = {"suggestions": list(fixes)}
    return read_response(422 if fixes else 200, body)


def lesson(asks: Task, field: str, value: Json, **sent: Json) -> Entry | None:
    """What is learned where the request was the task's own but for what was `sent`."""
    return ACME.lesson(asks, {**asks.input, **sent}, fix(field, value), "task")


def learned(asks: Task, field: str, value: Json, **sent: Json) -> Entry:
    found = lesson(asks, field, value, **sent)
    assert found is not None
    return found


def entry(key: tuple[str, ...], table: str, row: str, value: Json) -> Entry:
    return Entry(key, table, row, value, "1.0.0", cacheable=True)


def promo(code: str, value: Json, plan: str = "growth") -> Entry:
    return entry(("promo", code, plan), PROMO, code, value)


# -- keys and places -------------------------------------------------------------------------------


def test_places_of_a_charge() -> None:
    asks = charge(promo_codes=["SPRING24", "LAUNCH50"])
    assert ACME.places(asks) == {
        ("funding", "team", "pm_card_visa"): ["/payment_method"],
        ("enterprise", "team", "billing_interval", "monthly"): ["/billing_interval"],
        ("enterprise", "team", "seats", "8"): ["/seats"],
        ("promo", "SPRING24", "growth"): ["/promo_codes/0"],
        ("promo", "LAUNCH50", "growth"): ["/promo_codes/1"],
        ("csm", "growth"): ["/csm_code"],
    }


def test_places_of_a_refund_are_its_reason_alone() -> None:
    assert ACME.places(refund()) == {("refund", "reason", "changed_mind"): ["/reason"]}


def test_a_refund_goes_to_its_own_endpoint() -> None:
    assert ACME.endpoint(charge()) == "/billing/charges"
    assert ACME.endpoint(refund()) == "/billing/refunds"


@pytest.mark.parametrize(
    "changes",
    [
        {"tier": "enterprise"},
        {"payment_method": "pm_card_amex"},
        {"billing_interval": "annual"},
        {"seats": 9},
        {"plan_id": "partner"},
    ],
)
def test_another_task_has_other_keys(changes: Body) -> None:
    """What a key names is what decides; a task that differs there is not matched."""
    asks, other = set(ACME.keys(charge())), set(ACME.keys(charge(**changes)))
    assert asks != other


@pytest.mark.parametrize(
    ("asks", "drift_row"),
    [
        (charge(plan_id="partner"), "partner"),
        (charge(plan_id="enterprise-pilot"), "enterprise-pilot"),
        (charge(), None),
        (refund(), None),
    ],
)
def test_the_drift_row_is_the_plan_that_needs_a_code(asks: Task, drift_row: str | None) -> None:
    assert ACME.drift_row(asks) == drift_row


# -- lessons ---------------------------------------------------------------------------------------

LESSONS: dict[str, tuple[Task, str, Json, tuple[str, ...], str, Json]] = {
    "funding": (
        charge(tier="enterprise", payment_method="pm_card_visa_debit"),
        "/payment_method",
        "pm_card_amex",
        ("funding", "enterprise", "pm_card_visa_debit"),
        "enterprise",
        "pm_card_amex",
    ),
    "interval": (
        charge(tier="enterprise"),
        "/billing_interval",
        "annual",
        ("enterprise", "enterprise", "billing_interval", "monthly"),
        "enterprise.billing_interval",
        "annual",
    ),
    "seats": (
        charge(tier="enterprise"),
        "/seats",
        25,
        ("enterprise", "enterprise", "seats", "8"),
        "enterprise.seats",
        25,
    ),
    "csm": (
        charge(plan_id="partner"),
        "/csm_code",
        "CSM-1",
        ("csm", "partner"),
        "partner",
        "CSM-1",
    ),
    "promo replaced": (
        charge(promo_codes=["SPRING24"]),
        "/promo_codes",
        ["GROW20"],
        ("promo", "SPRING24", "growth"),
        "SPRING24",
        "GROW20",
    ),
    "promo left out": (
        charge(promo_codes=["LAUNCH50"]),
        "/promo_codes",
        [],
        ("promo", "LAUNCH50", "growth"),
        "LAUNCH50",
        None,
    ),
    "promo not stackable": (
        charge(promo_codes=["GROW20", "LAUNCH50"]),
        "/promo_codes",
        ["GROW20"],
        ("promo", "LAUNCH50", "growth"),
        "LAUNCH50",
        None,
    ),
    "refund reason": (
        refund(),
        "/reason",
        "requested_by_customer",
        ("refund", "reason", "changed_mind"),
        "reason.changed_mind",
        "requested_by_customer",
    ),
    "refund amount": (
        refund(amount=60000),
        "/amount",
        50000,
        ("refund", "amount", "60000"),
        "max_amount",
        50000,
    ),
}


@pytest.mark.parametrize("case", LESSONS)
def test_a_lesson_is_keyed_by_the_raw_task_and_names_the_row(case: str) -> None:
    asks, field, value, key, row, kept = LESSONS[case]
    found = learned(asks, field, value)
    assert (found.key, found.row, found.value, found.version) == (key, row, kept, None)


@pytest.mark.parametrize("case", LESSONS)
def test_a_lesson_matches_the_task_it_comes_from(case: str) -> None:
    asks, field, value, key, *_ = LESSONS[case]
    assert (key in ACME.keys(asks)) == (case != "refund amount"), "an amount is the request's own"
    assert learned(asks, field, value).key == key


def test_a_lesson_takes_table_and_hint_from_the_suggestion() -> None:
    asks = charge(plan_id="partner")
    for cacheable in (True, False):
        suggestion = fix("/csm_code", "CSM-1", CSM, cacheable=cacheable)
        found = ACME.lesson(asks, asks.input, suggestion, "task")
        assert found == Entry(("csm", "partner"), CSM, "partner", "CSM-1", cacheable=cacheable)


@pytest.mark.parametrize("case", LESSONS)
@given(stale=st.sampled_from(sorted(CODES)))
def test_what_the_request_held_is_in_no_key(case: str, stale: str) -> None:
    """A remembered value that drifted stands in the request, and the raw task's own word in the key."""
    asks, field, value, key, *_ = LESSONS[case]
    sent = {} if field == "/promo_codes" else {field[1:]: stale}
    assert learned(asks, field, value, **sent).key == key


@pytest.mark.parametrize(("mended", "kept"), [(["AUTUMN25"], "AUTUMN25"), ([], None)])
def test_a_remembered_promo_code_that_is_refused_is_learned_anew_under_the_raw_code(
    mended: list[str], kept: str | None
) -> None:
    """Else the stale value would stand there for good, and the lesson under a code no task has."""
    asks = charge(promo_codes=["SPRING24"])
    found = learned(asks, "/promo_codes", mended, promo_codes=["GROW20"])
    assert (found.key, found.row) == (("promo", "SPRING24", "growth"), "SPRING24")
    assert found.value == kept


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("", "X"),
        ("/", "X"),
        ("/amount", 1),
        ("/customer", "X"),
        ("/promo_codes/0", "X"),
        ("/promo_codes", "GROW20"),
        ("/promo_codes", ["SPRING24"]),
        ("/promo_codes", ["SPRING24", "GROW20"]),
        ("/csm_code/x", "X"),
        ("/reason", "duplicate"),
    ],
)
def test_a_suggestion_for_another_place_teaches_nothing(field: str, value: Json) -> None:
    assert lesson(charge(promo_codes=["SPRING24"]), field, value) is None


def test_a_code_that_only_the_request_has_teaches_nothing() -> None:
    """The agent made it up: no task would ever be matched."""
    assert lesson(charge(), "/promo_codes", [], promo_codes=["MADEUP"]) is None


@pytest.mark.parametrize("slip", [None, "GROW20", 3, {"code": "GROW20"}])
def test_promo_codes_that_are_no_list_carry_and_teach_nothing(slip: Json) -> None:
    """A live model may send anything; the run goes on."""
    asks = charge(promo_codes=["SPRING24"])
    request = {**asks.input, "promo_codes": slip}
    entries = [promo("SPRING24", "GROW20"), promo("SPRING24", None)]
    assert ACME.carried(entries, asks, request) == []
    assert lesson(asks, "/promo_codes", ["GROW20"], promo_codes=slip) is None


# -- application -----------------------------------------------------------------------------------


def test_a_promo_code_is_replaced_in_its_place() -> None:
    asks = charge(promo_codes=["OTHER", "SPRING24", "LAST"])
    draft = ACME.apply([promo("SPRING24", "GROW20")], asks)
    assert draft.body["promo_codes"] == ["OTHER", "GROW20", "LAST"]
    assert draft.carried == (promo("SPRING24", "GROW20"),)


def test_a_promo_code_is_removed_and_the_places_of_the_others_stay_right() -> None:
    asks = charge(promo_codes=["LAUNCH50", "SPRING24"])
    entries = [promo("LAUNCH50", None), promo("SPRING24", "GROW20")]
    for order in (entries, entries[::-1]):
        draft = ACME.apply(order, asks)
        assert draft.body["promo_codes"] == ["GROW20"]
        assert draft.carried == tuple(order)
    assert asks.input["promo_codes"] == ["LAUNCH50", "SPRING24"]


def test_a_replacement_matches_no_further_entry() -> None:
    asks = charge(promo_codes=["SPRING24"])
    draft = ACME.apply([promo("SPRING24", "GROW20"), promo("GROW20", None)], asks)
    assert draft.body["promo_codes"] == ["GROW20"]
    assert draft.carried == (promo("SPRING24", "GROW20"),)


def test_a_promo_entry_of_another_plan_changes_nothing() -> None:
    asks = charge(promo_codes=["SPRING24"])
    draft = ACME.apply([promo("SPRING24", "GROW20", "starter")], asks)
    assert (draft.body, draft.carried) == (asks.input, ())


def test_a_csm_code_is_added_where_the_task_has_none() -> None:
    asks = charge(plan_id="partner")
    body = ACME.apply([entry(("csm", "partner"), CSM, "partner", "CSM-1")], asks).body
    assert body == {**asks.input, "csm_code": "CSM-1"}


def test_without_entries_the_input_is_sent_as_it_is() -> None:
    for asks in (charge(promo_codes=["SPRING24", "SPRING24"]), charge(), refund()):
        draft = ACME.apply([], asks)
        assert (draft.body, draft.carried) == (asks.input, ())
        assert draft.body is not asks.input


# -- what a request carries ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "codes", "stands"),
    [
        ("GROW20", ["GROW20"], True),
        ("GROW20", ["OTHER", "GROW20"], True),
        ("GROW20", ["SPRING24", "GROW20"], False),
        ("GROW20", ["SPRING24"], False),
        ("GROW20", [], False),
        (None, [], True),
        (None, ["OTHER"], True),
        (None, ["SPRING24"], False),
    ],
)
def test_a_promo_entry_stands_where_its_code_is_gone_and_its_replacement_there(
    value: str | None, codes: list[str], stands: bool
) -> None:
    asks = charge(promo_codes=["SPRING24"])
    held = promo("SPRING24", value)
    found = ACME.carried([held], asks, {**asks.input, "promo_codes": codes})
    assert found == ([(held, ["/promo_codes/0"])] if stands else [])


def test_an_entry_is_carried_where_its_value_stands() -> None:
    asks = charge(plan_id="partner", tier="enterprise")
    entries = [
        entry(("csm", "partner"), CSM, "partner", "CSM-1"),
        entry(("enterprise", "enterprise", "seats", "8"), ENTERPRISE, "enterprise.seats", 25),
    ]
    assert ACME.carried(entries, asks, asks.input) == []
    request = {**asks.input, "csm_code": "CSM-1", "seats": 30}
    assert ACME.carried(entries, asks, request) == [(entries[0], ["/csm_code"])]
    assert ACME.carried(entries, asks, {}) == []


codes = st.lists(st.sampled_from(["SPRING24", "LAUNCH50", "OTHER"]), max_size=3, unique=True)
held_promos = st.lists(
    st.builds(
        promo,
        st.sampled_from(["SPRING24", "LAUNCH50", "OTHER", "ABSENT"]),
        st.sampled_from(["GROW20", "SUMMER", None]),
    ),
    max_size=4,
    unique_by=lambda each: each.key,
)


@given(codes, held_promos)
def test_what_application_says_it_carried_is_what_stands_in_the_request(
    listed: list[str], entries: list[Entry]
) -> None:
    asks = charge(promo_codes=listed)
    draft = ACME.apply(entries, asks)
    assert tuple(each for each, _ in ACME.carried(entries, asks, draft.body)) == draft.carried
    assert draft.carried == tuple(each for each in entries if each.key[1] in listed)


# -- what the live tables hold ---------------------------------------------------------------------


@pytest.mark.parametrize("case", LESSONS)
def test_the_live_row_holds_a_value_until_it_says_another(case: str) -> None:
    asks, field, value, *_ = LESSONS[case]
    found = learned(asks, field, value)
    kind = found.key[0]
    table = {"funding": FUNDING, "enterprise": ENTERPRISE, "csm": CSM, "promo": PROMO}.get(kind, REFUND)
    rows = copy.deepcopy(dict(TABLES[table].rows))
    if kind == "csm":
        rows["partner"] = "CSM-1"
    assert ACME.holds(found, rows)
    changed: dict[str, Json] = {
        "funding": {"accepts": ["credit"], "use": "pm_card_mastercard"},
        "promo": {"plans": [], "stackable": True, "replaced_by": "ELSE"},
    }
    rows["ELSE"] = {"plans": ["growth"], "stackable": True, "replaced_by": None}
    assert found.row is not None
    rows[found.row] = changed.get(kind, "another")
    assert not ACME.holds(found, rows)
    del rows[found.row]
    assert ACME.holds(found, rows) == (case in {"promo left out", "promo not stackable"})


def heirs(**rows: tuple[list[str], str | None]) -> dict[str, Json]:
    return {
        code: {"plans": plans, "stackable": True, "replaced_by": heir}
        for code, (plans, heir) in rows.items()
    }


@pytest.mark.parametrize(
    ("rows", "value"),
    [
        (heirs(A=([], "B"), B=(["growth"], None)), "B"),
        (heirs(A=([], "B"), B=([], "C"), C=(["growth"], None)), "C"),
        (heirs(A=([], "B"), B=(["starter"], None)), None),
        (heirs(A=([], "B"), B=([], "A")), None),
        (heirs(A=([], "GONE")), None),
        (heirs(A=(["starter"], None)), None),
        (heirs(), None),
    ],
)
def test_a_promo_code_leads_to_what_the_api_would_put_there(
    rows: dict[str, Json], value: str | None
) -> None:
    """Along the codes that replaced it, to the first that is for the plan; CONTRACT.md's promo rule."""
    from crossmem.api.acme.requests import ChargeRequest
    from crossmem.api.acme.rules import PromoRow, _promo
    from crossmem.api.problem import PolicyVerdict
    from crossmem.api.tables import ServedTable

    served = ServedTable(
        PROMO, "dict", "1", {code: PromoRow.model_validate(row) for code, row in rows.items()}
    )
    request = ChargeRequest.model_validate(charge(promo_codes=["A"]).input)
    _promo(request, {PROMO: served}, verdict := PolicyVerdict())
    (violation,) = verdict.violations
    assert violation.suggested == ([value] if value else [])
    for claimed in ("B", "C", None):
        assert ACME.holds(promo("A", claimed), rows) == (claimed == value), claimed


# -- intent ----------------------------------------------------------------------------------------


def test_the_intent_is_kept_where_every_field_asked_for_stands() -> None:
    criterion = {"keep": {"customer": "cus_1", "amount": 12900}}
    asks = charge()
    assert ACME.intent_kept(criterion, {**asks.input, "csm_code": "X", "seats": 30})
    for changed in ({"customer": "cus_2"}, {"amount": 1}, {"amount": None}):
        assert not ACME.intent_kept(criterion, {**asks.input, **changed})
    assert not ACME.intent_kept(criterion, {})


# -- companions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("snapshot", SNAPSHOTS, ids=lambda path: path.stem)
def test_the_companion_is_the_base_and_the_codes_in_force(snapshot: Any) -> None:
    live = read_table(snapshot).rows
    rows = {name: table.rows for name, table in TABLES.items()}
    before = copy.deepcopy(rows)
    (derived,) = ACME.companions({**rows, CSM: live}).items()
    assert derived[0] == PROMO
    assert rows == before
    added = {code: row for code, row in derived[1].items() if code not in rows[PROMO]}
    assert added == {
        code: {"plans": [plan], "stackable": True, "replaced_by": None} for plan, code in live.items()
    }
    assert {code: derived[1][code] for code in rows[PROMO]} == rows[PROMO]


# -- dict-shaped diffs -----------------------------------------------------------------------------


def test_a_diff_drops_the_rows_it_names_and_not_what_shares_their_value() -> None:
    """Two terms of a table are "annual". Rows are matched by key: one changes, the other survives."""
    memory = Memory(ARMS["A2D"], ACME, "task")
    tiers = {tier: charge(tier=tier) for tier in ("enterprise", "public")}
    rows = {f"{tier}.billing_interval": "annual" for tier in tiers}
    for asks in tiers.values():
        refusal = answer(suggested("/billing_interval", "annual", ENTERPRISE), enterprise_policy="1")
        memory.observe(Observation(asks, asks.input, refusal))
    entries = {tier: memory.recall(asks) for tier, asks in tiers.items()}
    assert [each.value for held in entries.values() for each in held] == ["annual", "annual"]
    old = LiveTable(ENTERPRISE, "1", rows)
    diff = difference(old, LiveTable(ENTERPRISE, "2", {**rows, "public.billing_interval": "quarterly"}))
    assert diff.diff == DictDiff(shape="dict", changed=["public.billing_interval"])
    gone = {old.rows[key] for key in diff.diff.changed}
    by_value = [tier for tier, held in entries.items() if {each.value for each in held} & gone]
    assert by_value == ["enterprise", "public"], "matching by value would have evicted both"
    memory.observe(DiffsHanded(diffs=[diff]))
    memory.observe(Observation(charge(), {}, answer(enterprise_policy="2")))
    assert memory.recall(tiers["public"]) == ()
    (survivor,) = memory.recall(tiers["enterprise"])
    assert (survivor.value, survivor.version) == ("annual", "2")


def test_one_row_may_stand_behind_several_keys_and_all_go_with_it() -> None:
    memory = Memory(ARMS["A2D"], ACME, "task")
    asked = [charge(tier="enterprise", seats=seats) for seats in (3, 8)]
    for asks in asked:
        refusal = answer(suggested("/seats", 25, ENTERPRISE), enterprise_policy="1")
        memory.observe(Observation(asks, asks.input, refusal))
    assert all(memory.recall(asks) for asks in asked)
    rows = dict(TABLES[ENTERPRISE].rows)
    diff = difference(
        LiveTable(ENTERPRISE, "1", rows), LiveTable(ENTERPRISE, "2", {**rows, "enterprise.seats": 50})
    )
    memory.observe(DiffsHanded(diffs=[diff]))
    memory.observe(Observation(charge(), {}, answer(enterprise_policy="2")))
    assert not any(memory.recall(asks) for asks in asked)


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", LESSONS)
def test_every_key_has_words_for_a_prompt(case: str) -> None:
    key = LESSONS[case][3]
    words = ACME.describe(key)
    assert all(part in words for part in key[1:] if part != "enterprise")
    assert words != str(key)


# -- the streams -----------------------------------------------------------------------------------

BLOCK = (
    "partner, funding A, promo X, pilot, interval, promo Y, "
    "funding B, partner, promo X, interval, pilot, promo Y"
).split(", ")
DRIFTS = {
    "acme_sanity": [(12, "v2")],
    "acme_m1": [(12, "v2"), (24, "v3"), (36, "v4")],
    "acme_refunds": [],
}
LADDERS = ("acme_sanity", "acme_m1")


def test_every_stream_drifts_where_the_contract_says() -> None:
    assert {plan.name: list(plan.drifts) for plan in PLANS} == DRIFTS
    for name, drifts in DRIFTS.items():
        events = streams.load(name).drift_events
        assert [(each.before, each.snapshot) for each in events] == drifts
        assert {each.table for each in events} <= {CSM}


@pytest.mark.parametrize("name", LADDERS)
def test_one_block_is_repeated_verbatim_and_the_partner_comes_first(name: str) -> None:
    episodes = streams.load(name).episodes
    tasks = [each.task for each in episodes]
    assert len(tasks) == {"acme_sanity": 24, "acme_m1": 48}[name]
    assert all(task == tasks[index % 12] for index, task in enumerate(tasks))
    kinds: dict[str, list[Body]] = {wanted: [] for wanted in BLOCK}
    for wanted, task in zip(BLOCK, tasks, strict=False):
        kinds[wanted].append(task.model_dump(exclude={"id"}))
    assert all(task == same[0] for same in kinds.values() for task in same)
    assert len({repr(same[0]) for same in kinds.values()}) == len(kinds)
    for before, _ in DRIFTS[name]:
        assert ACME.drift_row(tasks[before]) == "partner"


@pytest.mark.parametrize("name", LADDERS)
def test_tasks_are_as_the_contract_has_them(name: str) -> None:
    stream = streams.load(name)
    for task in {each.task.id: each.task for each in stream.episodes}.values():
        given = task.input
        assert "csm_code" not in given
        assert not CODES & set(map(str, given.values()))
        if ACME.drift_row(task):
            assert given["tier"] != "enterprise"
        if stream.family(task) == "promo":
            assert len(given["promo_codes"]) == 1
        assert (stream.family(task) == "csm") == (given["plan_id"] in CSM_PLANS)


def test_the_snapshots_rotate_what_the_contract_says() -> None:
    assert [path.stem for path in SNAPSHOTS] == ["v1", "v2", "v3", "v4"]
    tables = [read_table(path) for path in SNAPSHOTS]
    assert tables[0].rows == TABLES[CSM].rows
    rotated = [
        {plan for plan in CSM_PLANS if old.rows[plan] != new.rows[plan]}
        for old, new in pairwise(tables)
    ]
    assert rotated == [{"partner"}, {"enterprise-pilot"}, set(CSM_PLANS)]
    assert len(CODES) == 6, "no code comes back"


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_the_budget_window_crosses_no_drift(plan: Plan) -> None:
    if plan.budget_window is None:
        assert not plan.drifts
        return
    first, last = plan.budget_window
    assert not [before for before, _ in plan.drifts if first < before <= last]


def test_refunds_name_no_payment_and_charges_of_that_stream_are_declined() -> None:
    stream = streams.load("acme_refunds")
    for episode in stream.episodes:
        given = episode.task.input
        if stream.family(episode.task) == "refund":
            assert given["payment_intent"] == PROVISIONED
            assert episode.provision is not None
            assert episode.provision.into == "/payment_intent"
            assert episode.provision.body["amount"] >= given["amount"]
        else:
            assert episode.provision is None
            assert "Declined" in given["payment_method"]


def test_merging_what_is_suggested_mends_a_promo_list_as_a_whole() -> None:
    asks = charge(promo_codes=["SPRING24"])
    assert merged(asks.input, [fix("/promo_codes", ["GROW20"])])["promo_codes"] == ["GROW20"]
