"""The Acme billing domain: how its lessons are keyed and applied, and what drifts with the csm codes.

Keys come from raw task fields, never from a drifting value: `(funding, tier, token)`, `(enterprise,
tier, field, raw value)`, `(promo, code, plan_id)` holding that code's replacement or None for its
removal, `(csm, plan_id)`, `(refund, field, raw value)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from crossmem.contract import Json, Suggestion
from crossmem.domains.base import Body, Domain, Draft, Keying, Task
from crossmem.memory.entry import Entry, Key, same

CSM_PLANS = ("partner", "enterprise-pilot")
_TERMS = ("billing_interval", "seats")


class Acme(Domain):
    """`POST /billing/charges` and `POST /billing/refunds`."""

    name: ClassVar[str] = "acme"
    families: ClassVar[tuple[str, ...]] = ("funding", "enterprise", "promo", "csm", "refund")
    keyings: ClassVar[tuple[Keying, ...]] = ("task",)
    drifting_table: ClassVar[str] = "active_csm_codes"
    slot_family: ClassVar[str] = "csm"
    harness_induced: ClassVar[Mapping[str, str]] = {
        "promo": "the companion promo_eligibility that the harness derives and bumps at each rotation"
    }
    role: ClassVar[str] = (
        "You bill customers by calling a billing API. You are given a task and its Input Data; you "
        "answer with the JSON body of one request to the API."
    )

    def endpoint(self, task: Task) -> str:
        """A refund names the payment it gives back."""
        return "/billing/refunds" if "payment_intent" in task.input else "/billing/charges"

    def places(self, task: Task) -> dict[Key, list[str]]:
        """One place per field; each promo code has its own."""
        given = task.input
        if "payment_intent" in given:
            return {("refund", "reason", str(given.get("reason"))): ["/reason"]}
        tier, plan = str(given.get("tier")), str(given.get("plan_id"))
        found: dict[Key, list[str]] = {
            ("funding", tier, str(given.get("payment_method"))): ["/payment_method"]
        }
        for name in _TERMS:
            found["enterprise", tier, name, str(given.get(name))] = [f"/{name}"]
        for index, code in enumerate(given.get("promo_codes", ())):
            found["promo", str(code), plan] = [f"/promo_codes/{index}"]
        found["csm", plan] = ["/csm_code"]
        return found

    def apply(self, entries: Sequence[Entry], task: Task) -> Draft:
        """As everywhere; a promo code that an entry removes leaves the list."""
        draft = super().apply(entries, task)
        if isinstance(codes := draft.body.get("promo_codes"), list):
            draft.body["promo_codes"] = [code for code in codes if code is not None]
        return draft

    def stands(self, entry: Entry, pointer: str, request: Body) -> bool:
        """A promo entry stands where its code is gone and its replacement, if it has one, is there."""
        if entry.key[0] != "promo":
            return super().stands(entry, pointer, request)
        codes = request.get("promo_codes", [])
        if not isinstance(codes, list):  # a model's slip
            return False
        return entry.key[1] not in codes and (entry.value is None or entry.value in codes)

    def lesson(self, task: Task, request: Body, suggestion: Suggestion, keying: Keying) -> Entry | None:
        """Key a lesson by the raw task's own fields."""
        del keying  # this domain knows one
        found = self._keyed(task.input, request, suggestion)
        if found is None:
            return None
        key, row, value = found
        return Entry(key, suggestion.table, row, value, cacheable=suggestion.cacheable)

    def _keyed(self, raw: Body, request: Body, suggestion: Suggestion) -> tuple[Key, str, Json] | None:
        """Return key, table row and value of a suggestion; None for a place that teaches nothing."""
        tier, plan, value = str(raw.get("tier")), str(raw.get("plan_id")), suggestion.suggested_value
        match suggestion.field.removeprefix("/"):
            case "payment_method":
                return ("funding", tier, str(raw.get("payment_method"))), tier, value
            case ("billing_interval" | "seats") as name:
                return ("enterprise", tier, name, str(raw.get(name))), f"{tier}.{name}", value
            case "csm_code":
                return ("csm", plan), plan, value
            case "promo_codes" if isinstance(value, list):
                sent = request.get("promo_codes")
                sent = sent if isinstance(sent, list) else []
                code = _refused(raw.get("promo_codes", []), sent, value)
                new = next((each for each in value if each not in sent), None)
                return (("promo", str(code), plan), str(code), new) if code is not None else None
            case ("reason" | "amount") as name if "payment_intent" in raw:
                before = str(raw.get(name))
                row = f"reason.{before}" if name == "reason" else "max_amount"
                return ("refund", name, before), row, value
            case _:
                return None

    def holds(self, entry: Entry, rows: Mapping[str, Json]) -> bool:
        """The row must still lead to the entry's value."""
        now = self.current(entry, rows)
        return now is not None and same(now.value, entry.value)

    def current(self, entry: Entry, rows: Mapping[str, Json]) -> Entry | None:
        """A promo code's heir, None for its removal; what the row says of anything else."""
        if entry.key[0] == "promo":
            _, code, plan = entry.key
            return replace(entry, value=_heir(code, plan, rows))
        live = rows.get(entry.row or "")
        if entry.key[0] == "funding":
            live = (live or {}).get("use")
        return None if live is None else replace(entry, value=live)

    def intent_kept(self, criterion: Mapping[str, Json], request: Body) -> bool:
        """Plan, amount and the like as asked."""
        return all(same(request.get(name), value) for name, value in criterion["keep"].items())

    def drift_row(self, task: Task) -> str | None:
        """The plan, if its row of csm codes decides."""
        plan = task.input.get("plan_id")
        return plan if plan in CSM_PLANS else None

    def describe(self, key: Key) -> str:
        """Say which field the entry amends, and for which tasks."""
        match key:
            case ("funding", tier, token):
                return f"payment_method {token!r} of the tier {tier}"
            case ("enterprise", tier, name, value):
                return f"{name} {value!r} of the tier {tier}"
            case ("promo", code, plan):
                return f"promo code {code!r} on the plan {plan} (null: leave it out)"
            case ("csm", plan):
                return f"csm_code of the plan {plan}"
            case _:
                return " ".join(key)

    def companions(self, rows: Mapping[str, Mapping[str, Json]]) -> dict[str, dict[str, Any]]:
        """Make the csm codes in force eligible as promo codes; the API asks for that."""
        eligible = dict(rows["promo_eligibility"])
        for plan, code in rows[self.drifting_table].items():
            eligible[code] = {"plans": [plan], "stackable": True, "replaced_by": None}
        return {"promo_eligibility": eligible}


DOMAIN = Acme()


def _refused(raw: Sequence[str], sent: Sequence[str], mended: Sequence[str]) -> str | None:
    """Return the raw task's code that a mended list is about, None if there is none.

    It was sent and has to go; or what was sent in its place has to.
    """
    gone = [code for code in sent if code not in mended]
    own = (code for code in raw if code in gone)
    replaced = (code for code in raw if code not in sent and code not in mended)
    return next(own, next(replaced, None)) if gone else None


def _heir(code: str, plan: str, rows: Mapping[str, Any]) -> str | None:
    """Return the code that stands for `code` on a plan: the first of those after it that is for it."""
    seen: set[str] = set()
    following: str | None = code
    while following is not None and following in rows and following not in seen:
        row = rows[following]
        if plan in row.get("plans", ()):
            return following
        seen.add(following)
        following = row.get("replaced_by")
    return None
